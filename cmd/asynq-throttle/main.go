// Asynq-throttle shows and controls throttles, for the people on call: which jobs wait for what
// and until when, why a task does not run, how limits are used, which settings are in force, and
// whether all processes have the same configuration. It reads what the processes have published
// in Redis, and decides nothing. docs/command.md describes it.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/term"
)

// garbage is the growth of the heap, in percent, after which Go collects garbage. Most verbs end before that.
const garbage = 400

func main() {
	debug.SetGCPercent(garbage)
	logging.Disable() // a line of this program says it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	terminal := term.IsTerminal(int(os.Stdout.Fd()))
	p := &program{
		out: os.Stdout, errs: os.Stderr, in: os.Stdin,
		terminal: terminal,
		asks:     terminal && term.IsTerminal(int(os.Stdin.Fd())),
		colours:  terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
	os.Exit(p.run(ctx, os.Args[1:]))
}
