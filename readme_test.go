package throttle_test

import (
	"os"
	"strings"
	"testing"
)

// snippets are the Examples that the README's code in Go is of, in order.
var snippets = []string{
	"worker/example_new_test.go",
	"worker/example_client_test.go", "throttle/example_forecast_test.go", "throttle/example_forecast_test.go",
	"worker/example_smtp_wait_test.go",
	"throttle/example_settle_test.go", "throttle/example_pause_test.go", "throttle/example_limits_test.go", "throttle/example_mode_test.go",
	"connect/example_open_test.go", "metrics/example_new_test.go",
}

// TestReadmeSnippets: the code in the README is that of Examples, which the
// compiler and their Output keep true. "// …" stands for what is left out.
func TestReadmeSnippets(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(readme)
	for _, file := range snippets {
		var snippet string
		var found bool
		_, rest, _ = strings.Cut(rest, "```go\n")
		snippet, rest, found = strings.Cut(rest, "```\n")
		if !found {
			t.Fatalf("README.md has no code of %s", file)
		}
		isOf(t, snippet, file)
	}
	if strings.Contains(rest, "```go\n") {
		t.Error("README.md has code of no Example")
	}
}

// isOf fails the test unless the Example in file has the snippet's lines, in order.
func isOf(t *testing.T, snippet, file string) {
	t.Helper()
	example, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	code := string(example)
	for line := range strings.Lines(snippet) {
		line = strings.TrimSpace(line)
		if line == "// …" {
			continue
		}
		at := strings.Index(code, line)
		if at < 0 {
			t.Fatalf("this line of the README is not in %s, or not in this order:\n%s", file, line)
		}
		code = code[at+len(line):]
	}
}
