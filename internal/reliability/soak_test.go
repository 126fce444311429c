package reliability_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
)

// TestWriteSoak: the figures replace those of an earlier soak, and nothing else of a document changes.
func TestWriteSoak(t *testing.T) {
	t.Parallel()
	const before, after = "# Title\n\n<!-- make soak writes from here -->\n", "<!-- to here -->\n\nThe end.\n"
	path := filepath.Join(t.TempDir(), "document")
	must(t, os.WriteFile(path, []byte(before+"an old table\n"+after), 0o600))
	must(t, reliability.WriteSoak(path, []reliability.Figure{{What: "tasks", Value: "7"}, {What: "lost", Value: "0"}}))
	got, err := os.ReadFile(path)
	must(t, err)
	if want := before + "\n| what | measured |\n|---|---|\n| tasks | 7 |\n| lost | 0 |\n\n" + after; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	must(t, os.WriteFile(path, []byte("no markers"), 0o600))
	if reliability.WriteSoak(path, nil) == nil {
		t.Error("a document without markers was taken")
	}
	if reliability.WriteSoak(filepath.Join(t.TempDir(), "none"), nil) == nil {
		t.Error("a document that is not there was taken")
	}
}
