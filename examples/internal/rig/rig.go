// Package rig is what the examples need besides their subject: common flags, a Redis
// inside the process, progress, a report, a picture, and the exit status. The packages
// below it are the examples' servers, and the checks by the servers' own records.
//
// Your own program does not need it, and cannot import it. Copy from the examples.
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

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Exit statuses.
const (
	ExitOK     = 0 // all jobs have ended, and every check passed
	ExitNotAll = 1 // jobs are left or a check failed; the report says which
	ExitUsage  = 2 // a flag, a file or a server is wrong; nothing has begun
)

// Main runs a program with the process' arguments, and exits with the status it returns. Its
// context ends with the first SIGINT or SIGTERM; a second one ends the process at once.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	logging.Disable() // go-redis would log each failed connection amid the progress
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

// Report is the result of a run. -json prints its JSON.
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

// Refuse prints why a run does not begin, and returns the exit status.
func (p *Program) Refuse(err error) int {
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ExitOK
	case !errors.Is(err, errUsage):
		fmt.Fprintf(p.Stderr, "%s: %v\n", p.name, err)
	}
	return ExitUsage
}

// CheckRedis prints what is wrong with the Redis that -redis names. An error keeps the run
// from beginning.
func (p *Program) CheckRedis(ctx context.Context, th *throttle.Throttle) error {
	if p.Redis == "" {
		return nil
	}
	findings, err := inspect.New(th).Check(ctx)
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

// AtClose makes Close call a function. Close calls the latest first.
func (p *Program) AtClose(do func()) { p.closers = append(p.closers, do) }

// Close ends what was opened, the latest first.
func (p *Program) Close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
	p.closers = nil
}

// Now returns the time on Redis' clock.
func (p *Program) Now() time.Time { return time.Now().Add(p.Offset) }

// newLogger logs warnings, or everything, to stderr.
func newLogger(stderr io.Writer, verbose bool) *zap.Logger {
	level := zapcore.WarnLevel
	if verbose {
		level = zapcore.DebugLevel
	}
	config := zap.NewDevelopmentEncoderConfig()
	config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(config), zapcore.AddSync(stderr), level))
}

// SleepUntil waits for an instant of the local clock. It returns false if ctx has ended.
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
