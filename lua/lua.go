// Package lua holds the throttle's scripts, one file per verb, and composes
// them: a line "-- include: name" in a script or an include asks for the file
// include/name.lua, which defines the local function name. What runs in Redis
// is plain text, each include once, before whoever needs it.
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
	Peek    = mustCompose("peek")
	Cancel  = mustCompose("cancel")
	Usage   = mustCompose("usage")
	Count   = mustCompose("count")
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

// add writes a file after what it includes. path is how it was come to.
func (c *composer) add(file string, path []string) error {
	if slices.Contains(path, file) {
		return fmt.Errorf("lua: %s includes itself, by way of %s", file, strings.Join(path, ", "))
	}
	text, err := fs.ReadFile(c.files, file)
	if err != nil {
		return fmt.Errorf("lua: %s: %w", strings.Join(append(path, file), " includes "), err)
	}
	var body strings.Builder
	asked := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		name, isInclude := strings.CutPrefix(strings.TrimSpace(line), "-- include: ")
		if !isInclude {
			body.WriteString(line)
			continue
		}
		if asked[name] {
			return fmt.Errorf("lua: %s includes %s twice", file, name)
		}
		asked[name] = true
		if c.done[name] {
			continue
		}
		if err := c.add("include/"+name+".lua", append(path, file)); err != nil {
			return err
		}
		c.done[name] = true
	}
	c.text.WriteString(body.String())
	return nil
}
