package throttle_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeSnippet: the code in the README is that of an Example, which the
// compiler and its Output keep true. "// …" stands for what is left out.
func TestReadmeSnippet(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("worker/example_new_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	snippet, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("README.md has no code in Go")
	}
	code := string(example)
	for line := range strings.Lines(snippet) {
		line = strings.TrimSpace(line)
		if line == "// …" {
			continue
		}
		at := strings.Index(code, line)
		if at < 0 {
			t.Fatalf("this line of the README is not in the Example, or not in this order:\n%s", line)
		}
		code = code[at+len(line):]
	}
}
