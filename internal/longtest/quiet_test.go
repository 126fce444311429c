package longtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// logging are tests that log and end with a status.
type logging int

func (status logging) Run() int {
	fmt.Fprintln(os.Stderr, "WARN")
	return int(status)
}

// TestQuiet: what is logged is written if a test fails, and only then.
func TestQuiet(t *testing.T) {
	for status, want := range map[logging]string{0: "", 1: "WARN\n"} {
		path := filepath.Join(t.TempDir(), "stderr")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		before := os.Stderr
		os.Stderr = file
		got := Quiet(status).Run()
		os.Stderr = before
		_ = file.Close()
		text, err := os.ReadFile(path)
		if got != int(status) || string(text) != want || err != nil {
			t.Errorf("status %d, standard error %q, %v; want %d and %q", got, text, err, status, want)
		}
	}
}
