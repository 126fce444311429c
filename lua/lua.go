// Package lua holds the throttle's scripts, one file per verb, and composes them: a line
// "-- uses: a, b" in a script or an include names the files include/a.lua and include/b.lua,
// which define local functions of one kind. The text that runs in Redis has each include
// once, before the file that uses it: in a script in place of the line that names it.
//
// An include that ends with "return a, b" is a module: the script knows a and b, and
// all else is the module's own. All that follows the include request stands in one function.
// docs/decisions/0026-includes-are-modules.md says what that is for.
package lua

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.lua include/*.lua
var files embed.FS

// The composed scripts, ready to be loaded.
var (
	Reserve = mustCompose("reserve")
	Pull    = mustCompose("pull")
	Leave   = mustCompose("leave")
	Settle  = mustCompose("settle")
	Running = mustCompose("running")
	Set     = mustCompose("set")
	Report  = mustCompose("report")
	Usage   = mustCompose("usage")
	Lines   = mustCompose("lines")
	Check   = mustCompose("check")
	Edges   = mustCompose("edges")
)

// mustCompose panics only on a file that was embedded broken, which the tests
// of this package would have shown.
func mustCompose(name string) string {
	text, err := compose(files, name)
	if err != nil {
		panic(err)
	}
	return text
}

// compose returns the text of a script with its includes.
func compose(files fs.FS, name string) (string, error) {
	c := composer{files: files, done: make(map[string]bool)}
	if err := c.add(name+".lua", nil); err != nil {
		return "", err
	}
	if c.done[header] {
		c.text.WriteString("end)()\n")
	}
	return c.text.String(), nil
}

// header is the include with which every script begins. The functions after it find its names without a search.
const header = "request"

type composer struct {
	files fs.FS
	text  strings.Builder
	done  map[string]bool
}

// add writes a script, with its includes in place of the lines that name them.
func (c *composer) add(file string, path []string) error {
	return c.each(file, path, func(line string) { c.text.WriteString(line) })
}

// include writes an include after the includes that it uses itself.
func (c *composer) include(name string, path []string) error {
	if c.done[name] {
		return nil
	}
	var body strings.Builder
	if err := c.each("include/"+name+".lua", path, func(line string) { body.WriteString(line) }); err != nil {
		return err
	}
	c.done[name] = true
	c.text.WriteString(module(body.String()))
	if name == header {
		c.text.WriteString("return (function()\n")
	}
	return nil
}

// module returns the text of an include as it stands in a script.
func module(body string) string {
	end := strings.LastIndex(body, "\nreturn ")
	if end < 0 {
		return body
	}
	names := strings.TrimPrefix(body[end:], "\nreturn ")
	return "local " + strings.TrimSuffix(names, "\n") + " = (function()\n" + body + "end)()\n"
}

// each goes through a file's lines and includes what they use. path has the files that led to this one.
func (c *composer) each(file string, path []string, write func(line string)) error {
	if slices.Contains(path, file) {
		return fmt.Errorf("lua: %s uses itself, by way of %s", file, strings.Join(path, ", "))
	}
	path = append(slices.Clone(path), file)
	text, err := fs.ReadFile(c.files, file)
	if err != nil {
		return fmt.Errorf("lua: %s: %w", strings.Join(path, " uses "), err)
	}
	used := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		names, uses := strings.CutPrefix(strings.TrimSpace(line), "-- uses: ")
		if !uses {
			write(line)
			continue
		}
		for name := range strings.SplitSeq(names, ", ") {
			if used[name] {
				return fmt.Errorf("lua: %s uses %s twice", file, name)
			}
			used[name] = true
			if err := c.include(name, path); err != nil {
				return err
			}
		}
	}
	return nil
}
