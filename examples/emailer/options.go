package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// maxWorkers bounds -workers: each worker may hold an SMTP connection.
const maxWorkers = 1000

// options is what the command line asks for.
type options struct {
	campaign string           // CSV file; empty for the bundled one
	scopes   []throttle.Scope // from -limits
	redis    string           // URL or host:port; empty for the one inside
	smtp     string           // host:port; empty for the one inside
	plot     string           // file to write; empty for none
	metrics  string           // host:port to serve metrics at; empty for none
	plan     bool             // mails are planned when they are enqueued
	warmup   warmup
	json     bool
	workers  int
	queue    string // asynq queue; empty for one named after the campaign
	verbose  bool
}

// errUsage says that the flag package has already told what is wrong.
var errUsage = errors.New("usage")

// parseOptions reads the command line. flag.ErrHelp means that help was asked
// for and given.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("emailer", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "emailer sends a campaign of mails through asynq, shaped under quotas.")
		fmt.Fprintln(stderr, "\nUsage: go run ./examples/emailer [flags]")
		flags.PrintDefaults()
	}
	flags.StringVar(&o.campaign, "campaign", "", "CSV `file` with the mails (default: the bundled campaign)")
	limits := flags.String("limits", defaultLimits, "limits of each scope, `scope=units/window,…;…`")
	flags.BoolVar(&o.plan, "plan", true, "plan the mails when they are enqueued; else each is put back when it comes")
	warmup := flags.String("warmup", defaultWarmup, "limit of a tenant that grows: `tenant=time units/window;…`, where - stands for that of all; left out if the campaign has no mails of it")
	flags.StringVar(&o.redis, "redis", "", "`URL` or host:port of Redis: redis://, rediss://, unix://, redis-sentinel://, redis-cluster:// (default: one inside the process)")
	flags.StringVar(&o.smtp, "smtp", "", "`host:port` of an SMTP server (default: one inside the process)")
	flags.StringVar(&o.plot, "plot", "", "write a picture to `file` (.svg or .png)")
	flags.StringVar(&o.metrics, "metrics", "", "serve metrics for Prometheus at `host:port`, such as 127.0.0.1:9464, while it runs")
	flags.BoolVar(&o.json, "json", false, "print one JSON object on standard output, all else on standard error")
	flags.IntVar(&o.workers, "workers", 32, "mails in hand at once")
	flags.StringVar(&o.queue, "queue", "", "asynq queue `name`; another name sends the campaign anew (default: after the campaign's content)")
	flags.BoolVar(&o.verbose, "v", false, "log what asynq and the throttle do")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	var err error
	if o.scopes, err = parseLimits(*limits); err != nil {
		return o, err
	}
	if o.warmup, err = parseWarmup(*warmup); err != nil {
		return o, err
	}
	err = o.check(flags.Args())
	return o, err
}

func (o *options) check(rest []string) error {
	switch extension := strings.ToLower(filepath.Ext(o.plot)); {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; all arguments are flags", rest[0])
	case o.workers < 1 || o.workers > maxWorkers:
		return fmt.Errorf("-workers %d is not between 1 and %d", o.workers, maxWorkers)
	case o.queue != "" && !validID(o.queue):
		return fmt.Errorf("-queue %q is not 1 to %d letters, digits, _ . or -", o.queue, maxID)
	case o.plot != "" && extension != ".svg" && extension != ".png":
		return fmt.Errorf("-plot %s ends neither in .svg nor in .png", o.plot)
	}
	return nil
}
