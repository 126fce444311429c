package longtest

import (
	"flag"
	"fmt"
	"io"
	"os"
)

// Tests are the tests of a package: *testing.M.
type Tests interface{ Run() int }

// Quiet makes tests write what is logged to standard error only if one of them fails: a warning
// in the output of tests that pass is one that a reader looks for in vain.
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
	status := q.tests.Run()
	os.Stderr = standardError
	if status != 0 {
		if _, err := held.Seek(0, io.SeekStart); err == nil {
			_, _ = io.Copy(os.Stderr, held)
		}
	}
	return status
}
