package main

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
)

// spinVariable is the environment variable that makes this program a process that spins.
const spinVariable = "BENCH_SPIN"

// spinIfChild spins until the parent has gone, if this is such a process.
func spinIfChild() {
	if os.Getenv(spinVariable) == "" {
		return
	}
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	for !ended.Load() { //nolint:revive // empty-block: that is what it is for
	}
	os.Exit(0)
}

// awake keeps every core from sleeping until stop is called: a process of the lowest
// priority spins on each.
func awake() (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := []string{self}
	if nice, err := exec.LookPath("nice"); err == nil {
		command = []string{nice, "-n", "19", self}
	}
	var spinning []func()
	stop = func() {
		for _, end := range spinning {
			end()
		}
	}
	for range runtime.NumCPU() {
		process := exec.Command(command[0], command[1:]...) //nolint:gosec // G204: it is this program
		process.Env = append(os.Environ(), spinVariable+"=1", "GOMAXPROCS=2")
		leash, err := process.StdinPipe()
		if err == nil {
			err = process.Start()
		}
		if err != nil {
			stop()
			return nil, err
		}
		spinning = append(spinning, func() {
			_ = process.Process.Kill() // it may have gone
			_ = leash.Close()
			_ = process.Wait()
		})
	}
	return stop, nil
}
