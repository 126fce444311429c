// Package rig is what the examples need besides their subject: flags that both have,
// a Redis where there is none, progress, a report, a picture, and the exit status. The
// packages below it are their servers, and the checks by the servers' own records.
//
// A program of your own needs none of it, and cannot import it. What to copy is in
// the examples.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Exit statuses.
const (
	ExitOK     = 0 // all is done, and nothing was broken
	ExitNotAll = 1 // not so, or interrupted; the report says what
	ExitUsage  = 2 // a flag, a file or a server is wrong; nothing has begun
)

// Main runs a program with the process' arguments, and exits with what it returns. Its
// context ends with the first SIGINT or SIGTERM; a second one ends the process at once.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	logging.Disable() // go-redis would tell of each connection that fails, among the progress
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Program is one run of an example. Make it with New, call Parse, then OpenRedis, and
// Close in the end.
type Program struct {
	Options
	Stderr   io.Writer // safe for concurrent use
	Log      *zap.Logger
	Client   redis.UniversalClient // after OpenRedis
	Offset   time.Duration         // Redis' clock ahead of ours
	Progress Progress              // after ShowProgress

	name     string
	stdout   io.Writer
	terminal bool
	closers  []func()
}

// Report is what a run has to say in the end. Its JSON is what -json prints.
type Report interface {
	Well() bool             // exit status 0
	Write(w io.Writer)      // for a person
	Plot(path string) error // a picture, as PNG or SVG by its name
}

// New returns a run of the program with this name.
func New(name string, stdout, stderr io.Writer) *Program {
	return &Program{
		name: name, stdout: stdout, terminal: isTerminal(stderr),
		Stderr: zapcore.Lock(zapcore.AddSync(stderr)), // workers log while progress is shown
	}
}

// Refuse says why a run does not begin, and returns the exit status.
func (p *Program) Refuse(err error) int {
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ExitOK
	case !errors.Is(err, errUsage):
		fmt.Fprintf(p.Stderr, "%s: %v\n", p.name, err)
	}
	return ExitUsage
}

// CheckRedis tells what is wrong with the Redis that -redis names; the error is what
// keeps the run from beginning.
func (p *Program) CheckRedis(ctx context.Context, th *throttle.Throttle) error {
	if p.Redis == "" {
		return nil
	}
	findings, err := th.Inspector().Check(ctx)
	for _, f := range findings {
		fmt.Fprintf(p.Stderr, "%s: redis: %s\n", p.name, f)
	}
	return err
}

// Finish reports a run, which may have failed, and returns the exit status.
func (p *Program) Finish(r Report, failed error) int {
	if failed != nil {
		fmt.Fprintf(p.Stderr, "%s: %v\n", p.name, failed)
	}
	if err := p.report(r); err != nil {
		fmt.Fprintf(p.Stderr, "%s: %v\n", p.name, err)
		return ExitNotAll
	}
	if failed != nil || !r.Well() {
		return ExitNotAll
	}
	return ExitOK
}

func (p *Program) report(r Report) error {
	if p.JSON {
		r.Write(p.Stderr)
		encoder := json.NewEncoder(p.stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	} else {
		r.Write(p.stdout)
	}
	if p.Plot == "" {
		return nil
	}
	return r.Plot(p.Plot)
}

// AtClose has Close call a function. The latest is called first.
func (p *Program) AtClose(do func()) { p.closers = append(p.closers, do) }

// Close ends what was opened, the latest first.
func (p *Program) Close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
	p.closers = nil
}

// Now is the time on Redis' clock.
func (p *Program) Now() time.Time { return time.Now().Add(p.Offset) }

// newLogger writes warnings to stderr, or everything.
func newLogger(stderr io.Writer, verbose bool) *zap.Logger {
	level := zapcore.WarnLevel
	if verbose {
		level = zapcore.DebugLevel
	}
	config := zap.NewDevelopmentEncoderConfig()
	config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(config), zapcore.AddSync(stderr), level))
}

// SleepUntil waits for an instant of the local clock; false if ctx ended.
func SleepUntil(ctx context.Context, instant time.Time) bool {
	if ctx.Err() != nil {
		return false
	}
	wait := time.Until(instant)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
