package longtest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9"
)

// Tests are the tests of a package: *testing.M.
type Tests interface{ Run() int }

// Quiet makes tests write what is logged to standard error only if one of them fails: a reader of passing tests would
// look for the fault behind a warning in vain.
func Quiet(tests Tests) Tests { return quiet{tests} }

type quiet struct{ tests Tests }

// Run runs the tests and returns their exit status.
func (q quiet) Run() int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if fuzz := flag.Lookup("test.fuzz"); fuzz != nil && fuzz.Value.String() != "" {
		return q.tests.Run() // its progress goes to standard error
	}
	held, err := os.CreateTemp("", "tests-*.log")
	if err != nil {
		fmt.Fprintln(os.Stderr, "longtest: what is logged is not held back:", err)
		return q.tests.Run()
	}
	defer func() {
		_ = held.Close()
		_ = os.Remove(held.Name())
	}()
	standardError := os.Stderr
	os.Stderr = held
	redis.SetLogger(connections{held}) // go-redis keeps the standard error of when it was loaded
	status := q.tests.Run()
	os.Stderr = standardError
	if status != 0 {
		if _, err := held.Seek(0, io.SeekStart); err == nil {
			_, _ = io.Copy(os.Stderr, held)
		}
	}
	return status
}

// connections writes go-redis' log lines. Each failed connection has one, and tests of faults make many.
type connections struct{ to io.Writer }

func (c connections) Printf(_ context.Context, format string, values ...any) {
	_, _ = fmt.Fprintf(c.to, format+"\n", values...)
}
