package longtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// logging is a set of tests that log and end with a status.
type logging int

func (status logging) Run() int {
	fmt.Fprintln(os.Stderr, "WARN")
	nobody := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody there") },
	})
	_ = nobody.Ping(context.Background()).Err() // go-redis logs that it cannot connect
	_ = nobody.Close()
	return int(status)
}

// TestQuiet: what is logged is written if a test fails, and only then.
func TestQuiet(t *testing.T) {
	for status, want := range map[logging][]string{0: nil, 1: {"WARN\n", "nobody there\n"}} {
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
		right := err == nil && got == int(status) && (want != nil || len(text) == 0)
		for _, line := range want {
			right = right && strings.Contains(string(text), line)
		}
		if !right {
			t.Errorf("status %d, standard error %q, %v; want %d and %q", got, text, err, status, want)
		}
	}
}
