package rig

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hibiken/asynq"
)

// maxWorkers bounds -workers: each worker may hold a connection.
const maxWorkers = 1000

// maxName is the length of the longest queue or ID.
const maxName = 64

// Options are the flags that every example has.
type Options struct {
	Redis   string // URL or host:port; empty for the one inside
	Plot    string // file to write; empty for none
	JSON    bool
	Workers int
	Queue   string // asynq queue; empty for a queue that is named after the jobs
	// Dashboard is the host:port on loopback for the dashboard; empty for none.
	Dashboard string
	Verbose   bool
}

// errUsage means that the flag package has already printed what is wrong.
var errUsage = errors.New("usage")

// Flags returns a flag set with the flags of every example. what names the jobs, such as "mails"; again describes the
// effect of another queue.
func (p *Program) Flags(purpose, what, again string) *flag.FlagSet {
	flags := flag.NewFlagSet(p.name, flag.ContinueOnError)
	flags.SetOutput(p.Stderr)
	flags.Usage = func() {
		fmt.Fprintf(p.Stderr, "%s %s\n\nUsage: go run ./examples/%[1]s [flags]\n", p.name, purpose)
		flags.PrintDefaults()
	}
	flags.StringVar(&p.Redis, "redis", "",
		"`URL` or host:port of Redis: redis://, rediss://, unix://, redis-sentinel://, redis-cluster:// (default: "+
			"one inside the process)")
	flags.StringVar(&p.Plot, "plot", "", "write a picture to `file` (.svg or .png)")
	flags.BoolVar(&p.JSON, "json", false, "print one JSON object on standard output, all else on standard error")
	flags.IntVar(&p.Workers, "workers", 32, what+" that run at once")
	flags.StringVar(&p.Queue, "queue", "", "asynq queue `name`; another name "+again)
	flags.StringVar(&p.Dashboard, "dashboard", "",
		"serve the dashboard at `host:port` on loopback, such as 127.0.0.1:8081, while it runs")
	flags.BoolVar(&p.Verbose, "v", false, "log what asynq and the throttle do")
	return flags
}

// Parse parses the command line. Refuse prints its errors.
func (p *Program) Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	p.Log = newLogger(p.Stderr, p.Verbose)
	switch extension := strings.ToLower(filepath.Ext(p.Plot)); {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; all arguments are flags", flags.Arg(0))
	case p.Workers < 1 || p.Workers > maxWorkers:
		return fmt.Errorf("-workers %d is not between 1 and %d", p.Workers, maxWorkers)
	case p.Queue != "" && !ValidName(p.Queue):
		return fmt.Errorf("-queue %q is not 1 to %d letters, digits, _ . or -", p.Queue, maxName)
	case p.Plot != "" && extension != ".svg" && extension != ".png":
		return fmt.Errorf("-plot %s ends neither in .svg nor in .png", p.Plot)
	case p.Plot != "" && !isFolder(filepath.Dir(p.Plot)):
		return fmt.Errorf("-plot %s: there is no folder %s", p.Plot, filepath.Dir(p.Plot))
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// LogLevel returns asynq's log level. The report has the tasks that fail.
func (p *Program) LogLevel() asynq.LogLevel {
	if p.Verbose {
		return asynq.InfoLevel
	}
	return asynq.ErrorLevel
}

// ValidName reports whether a name has 1 to 64 letters, digits, _ . or -, so that Redis' keys
// can contain it unescaped.
func ValidName(name string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	return name != "" && len(name) <= maxName && strings.Trim(name, letters) == ""
}
