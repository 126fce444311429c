package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/crawl"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// programVariable is the environment variable that makes this test binary the program.
const programVariable = "CRAWLER_PROGRAM"

func TestMain(m *testing.M) {
	longtest.Default("test.parallel", "4") // they wait most of the time
	if os.Getenv(programVariable) != "" {
		main() // exits
	}
	os.Exit(longtest.Quiet(m).Run())
}

// runProgram runs the program with -json as a process of its own, and reads what it
// printed. The process gets a SIGINT when ctx ends.
func runProgram(ctx context.Context, t *testing.T, log interface {
	io.Writer
	fmt.Stringer
}, args ...string) (status int, s crawl.Summary) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	program := exec.CommandContext(ctx, self, append(args, "-json")...)
	program.Env = append(os.Environ(), programVariable+"=1")
	program.Stdout, program.Stderr = &out, log
	program.Cancel = func() error { return program.Process.Signal(os.Interrupt) }
	program.WaitDelay = 30 * time.Second // then it is killed
	err = program.Run()
	if jsonErr := json.Unmarshal(out.Bytes(), &s); jsonErr != nil {
		t.Fatalf("%v, standard output is not one JSON object: %v\n%s\n%s", err, jsonErr, out.String(), log)
	}
	return program.ProcessState.ExitCode(), s
}

// Ctrl-C ends the program with a report and status 1; run again, it goes on.
func TestProgramGoesOnAfterCtrlC(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no process can send another one a Ctrl-C here")
	}
	args := []string{"-redis", ownRedis(t), "-host-pages", "8"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &cancelWriter{cancel: cancel}
	status, first := runProgram(ctx, t, log, args...)
	if status != rig.ExitNotAll {
		t.Errorf("first run: status %d, want %d", status, rig.ExitNotAll)
	}
	expectLeft(t, first, log.String())
	var again bytes.Buffer
	status, second := runProgram(t.Context(), t, &again, args...)
	expectWentOn(t, first, status, second, again.String())
}
