// Package lua holds the throttle's scripts, one file per verb, and composes
// them: a line "-- include: name" in a script or an include asks for the file
// include/name.lua, which defines local functions of one kind. What runs in Redis
// is plain text: in a script the include stands where it is asked for, what an
// include asks for stands before it, and nothing stands there twice.
//
// An include that ends with "return a, b" is a module: the script knows a and b, and
// all else is the module's own. docs/decisions/0026-includes-are-modules.md says what
// that is for.
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

// compose returns the text of script name with its includes before it.
func compose(files fs.FS, name string) (string, error) {
	c := composer{files: files, done: make(map[string]bool)}
	if err := c.add(name+".lua", nil); err != nil {
		return "", err
	}
	return c.text.String(), nil
}

type composer struct {
	files fs.FS
	text  strings.Builder
	done  map[string]bool
}

// add writes a script, its includes in place of the lines that ask for them.
func (c *composer) add(file string, path []string) error {
	return c.each(file, path, func(line string) { c.text.WriteString(line) })
}

// include writes an include after what it asks for itself.
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

// each goes through a file's lines and includes what they ask for. path is how
// the file was come to.
func (c *composer) each(file string, path []string, write func(line string)) error {
	if slices.Contains(path, file) {
		return fmt.Errorf("lua: %s includes itself, by way of %s", file, strings.Join(path, ", "))
	}
	path = append(slices.Clone(path), file)
	text, err := fs.ReadFile(c.files, file)
	if err != nil {
		return fmt.Errorf("lua: %s: %w", strings.Join(path, " includes "), err)
	}
	asked := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		name, isInclude := strings.CutPrefix(strings.TrimSpace(line), "-- include: ")
		if !isInclude {
			write(line)
			continue
		}
		if asked[name] {
			return fmt.Errorf("lua: %s includes %s twice", file, name)
		}
		asked[name] = true
		if err := c.include(name, path); err != nil {
			return err
		}
	}
	return nil
}
