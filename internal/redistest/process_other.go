//go:build !unix

package redistest

import "syscall"

// This system has no signal that pauses a process: Pause and Resume end the test.
const (
	suspend = syscall.Signal(-1)
	proceed = syscall.Signal(-1)
)

// watch starts no watchdog on this system: a test binary that is killed leaves its
// server running.
func watch(int, string) (*watchdog, error) { return nil, nil }
