package throttle_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	fence      = regexp.MustCompile("(?s)(?:\\A|\n)```.*?\n```[^\n]*")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	inlineLink = regexp.MustCompile(`\]\(([^()\s]+)(?: "[^"]*")?\)`)
	named      = regexp.MustCompile(`(?m)^\[([^\]]+)\]: *(\S+)$`)
	byName     = regexp.MustCompile(`\[[^\]\[]+\]\[([^\]]+)\]`)
	htmlLink   = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	anchorName = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	scheme     = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// TestLinks: what documents link to in this repository is there, headings included.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, page := range documents(t) {
		text := inlineCode.ReplaceAllString(fence.ReplaceAllString(read(t, page), ""), "code")
		targets := make(map[string]string)
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			targets[strings.ToLower(found[1])] = found[2]
			checkLink(t, page, found[2])
		}
		for _, found := range byName.FindAllStringSubmatch(text, -1) {
			if targets[strings.ToLower(found[1])] == "" {
				t.Errorf("%s: [%s] is not defined", page, found[1])
			}
		}
		for _, links := range []*regexp.Regexp{inlineLink, htmlLink} {
			for _, found := range links.FindAllStringSubmatch(text, -1) {
				checkLink(t, page, found[1])
			}
		}
	}
}

// checkLink leaves links to other sites alone: the tests need no network.
func checkLink(t *testing.T, page, link string) {
	t.Helper()
	if scheme.MatchString(link) {
		return
	}
	path, anchor, _ := strings.Cut(link, "#")
	file := page
	if path != "" {
		file = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("%s links to %s, which is not there", page, link)
		return
	}
	if anchor != "" && strings.HasSuffix(file, ".md") && !anchors(read(t, file))[anchor] {
		t.Errorf("%s links to %s, but %s has no such heading", page, link, file)
	}
}

// anchors are the names that GitHub gives to headings, and those that stand in the text.
func anchors(text string) map[string]bool {
	text = fence.ReplaceAllString(text, "")
	names := make(map[string]bool)
	for _, found := range anchorName.FindAllStringSubmatch(text, -1) {
		names[found[1]] = true
	}
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(found[1], "$1")
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' ||
				r > utf8.RuneSelf && !strings.ContainsRune("…–—“”‘’→≤≥×·", r):
				return r
			}
			return -1
		}, strings.ToLower(title))
		unique := name
		for n := 1; names[unique]; n++ {
			unique = name + "-" + string(rune('0'+n))
		}
		names[unique] = true
	}
	return names
}

// documents are all Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path == ".git" || entry.Name() == "node_modules" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
