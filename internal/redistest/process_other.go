//go:build !unix

package redistest

import "syscall"

// There is no such signal here: Pause and Resume end the test.
const (
	suspend = syscall.Signal(-1)
	proceed = syscall.Signal(-1)
)

// watch has nothing to offer here: a test binary that is killed leaves its
// server running.
func watch(int, string) (*watchdog, error) { return nil, nil }
