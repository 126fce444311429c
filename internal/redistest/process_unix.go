//go:build unix

package redistest

import (
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

const (
	suspend = syscall.SIGSTOP
	proceed = syscall.SIGCONT
)

// watch starts a watchdog, which kills the process pid and removes the directory when
// this process has ended.
func watch(pid int, dir string) (*watchdog, error) {
	const script = `trap '' INT TERM HUP; cat; kill -9 "$1"; rm -f -- "${2:?}"/*; rmdir -- "$2"`
	process := exec.Command("sh", "-c", script, "sh", strconv.Itoa(pid), dir)
	leash, err := process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("redistest: watchdog: %w", err)
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("redistest: watchdog: %w", err)
	}
	return &watchdog{process: process, leash: leash}, nil
}
