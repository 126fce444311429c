package throttle_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// forUsers are the pages that a user reads first: their code is tested, their lines are
// short.
func forUsers(t *testing.T) []string {
	t.Helper()
	guide, err := filepath.Glob("docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"README.md"}, guide...)
}

// exampleOf matches the line before a block of code, which names the file of its Example.
var exampleOf = regexp.MustCompile(`^<!-- ((?:\w+/)+example\w*_test\.go) -->$`)

// TestPagesShowExamples: code in Go in the README and the guide is that of Examples,
// which the compiler and their Output keep true. "// …" stands for what is left out. A
// diff must show the code as it is after the change.
func TestPagesShowExamples(t *testing.T) {
	t.Parallel()
	for _, page := range forUsers(t) {
		lines := strings.Split(read(t, page), "\n")
		for i := 0; i < len(lines); i++ {
			isDiff := lines[i] == "```diff"
			if lines[i] != "```go" && !isDiff {
				continue
			}
			named := exampleOf.FindStringSubmatch(lines[max(0, i-1)])
			if named == nil {
				t.Errorf(
					"%s:%d: the line before this code does not name its Example: <!-- worker/example_new_test.go -->", page, i+1)
				continue
			}
			code := lines[i+1:]
			code = code[:max(0, slices.Index(code, "```"))]
			i += len(code)
			if isDiff {
				code = changed(code)
			}
			isOf(t, page, code, named[1])
		}
	}
}

// changed returns the code after a diff, without the lines that the diff removes.
func changed(diff []string) []string {
	var code []string
	for _, line := range diff {
		if !strings.HasPrefix(line, "-") && line != "" {
			code = append(code, line[1:])
		}
	}
	return code
}

// patient is what pages leave out of Examples: their Redis shares a machine that may be busy.
var patient = strings.NewReplacer(
	"&throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy", "nil)",
	"&throttle.Options{Timeout: 5 * time.Second})", "nil)",
	", Timeout: 5 * time.Second}", "}",
)

// isOf fails the test unless file has an Example with a checked Output, and the lines stand
// there in this order.
func isOf(t *testing.T, page string, lines []string, file string) {
	t.Helper()
	example := patient.Replace(read(t, file))
	_, code, is := strings.Cut(example, "\nfunc Example")
	if !is || !strings.Contains(code, "// Output:") && !strings.Contains(code, "// Unordered output:") {
		t.Errorf("%s: %s has no Example with an Output", page, file)
	}
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line == "// …" || line == "" {
			continue
		}
		at := strings.Index(code, line)
		if at < 0 {
			t.Errorf("%s: this line is not in the Example of %s, or not in this order:\n%s", page, file, line)
			return
		}
		code = code[at+len(line):]
	}
}

// longestLine is what fits beside a diff.
const longestLine = 120

// TestPagesHaveShortLines holds for what users read first.
func TestPagesHaveShortLines(t *testing.T) {
	t.Parallel()
	pages := append(forUsers(t), "docs/glossary.md", "docs/release.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
	for _, page := range pages {
		for i, line := range strings.Split(read(t, page), "\n") {
			if length := utf8.RuneCountInString(line); length > longestLine {
				t.Errorf("%s:%d has %d characters, more than %d", page, i+1, length, longestLine)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
