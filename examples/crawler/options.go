package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Bounds of what the command line asks for.
const (
	maxWorkers = 1000
	minMaxKB   = 500     // as much of a robots.txt has to be read
	maxMaxKB   = 1 << 20 // kilobytes
)

// options is what the command line asks for.
type options struct {
	seeds     string           // CSV file; empty for the bundled web
	requests  []throttle.Scope // limits in requests
	kilobytes []throttle.Scope // limits in kilobytes
	redis     string           // URL or host:port; empty for the one inside
	agent     string           // User-Agent
	depth     int              // links from a start page
	hostPages int              // pages of one host
	maxKB     int64            // kilobytes of one page
	timeout   time.Duration    // of one request
	plot      string           // file to write; empty for none
	json      bool
	workers   int
	queue     string // asynq queue; empty for one named after the seeds
	verbose   bool
}

// bundled tells whether the web inside the process is crawled.
func (o *options) bundled() bool { return o.seeds == "" }

// errUsage says that the flag package has already told what is wrong.
var errUsage = errors.New("usage")

// parseOptions reads the command line. flag.ErrHelp means that help was asked
// for and given.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("crawler", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "crawler fetches pages through asynq, shaped under budgets and by what each host asks for.")
		fmt.Fprintln(stderr, "\nUsage: go run ./examples/crawler [flags]")
		flags.PrintDefaults()
	}
	flags.StringVar(&o.seeds, "seeds", "", "CSV `file` with customers and start pages of the real web (default: a web inside the process)")
	requests := flags.String("requests", "", "limits in requests, `scope=units/window,…;…` (default "+bundledRequests+"; with -seeds "+politeRequests+")")
	kilobytes := flags.String("kilobytes", "", "limits in kilobytes, `scope=units/window,…;…` (default "+bundledKilobytes+"; with -seeds "+politeKilobytes+")")
	flags.StringVar(&o.redis, "redis", "", "`URL` or host:port of Redis: redis://, rediss://, unix://, redis-sentinel://, redis-cluster:// (default: one inside the process)")
	flags.StringVar(&o.agent, "agent", "crawler-example", "`User-Agent` header; robots.txt is read for the name it begins with")
	flags.IntVar(&o.depth, "depth", 8, "how many links away from a start page")
	flags.IntVar(&o.hostPages, "host-pages", 30, "how many pages of one host")
	flags.Int64Var(&o.maxKB, "max-kb", 512, "how many kilobytes of one page")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "of one request, the body included")
	flags.StringVar(&o.plot, "plot", "", "write a picture to `file` (.svg or .png)")
	flags.BoolVar(&o.json, "json", false, "print one JSON object on standard output, all else on standard error")
	flags.IntVar(&o.workers, "workers", 32, "pages in hand at once")
	flags.StringVar(&o.queue, "queue", "", "asynq queue `name`; another name crawls anew (default: after the seeds)")
	flags.BoolVar(&o.verbose, "v", false, "log what asynq and the throttle do")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	if err := o.check(flags.Args()); err != nil {
		return o, err
	}
	err := o.setLimits(*requests, *kilobytes)
	return o, err
}

func (o *options) check(rest []string) error {
	switch extension := strings.ToLower(filepath.Ext(o.plot)); {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; all arguments are flags", rest[0])
	case o.workers < 1 || o.workers > maxWorkers:
		return fmt.Errorf("-workers %d is not between 1 and %d", o.workers, maxWorkers)
	case o.depth < 0:
		return fmt.Errorf("-depth %d is less than 0", o.depth)
	case o.hostPages < 1:
		return fmt.Errorf("-host-pages %d is less than 1", o.hostPages)
	case o.maxKB < minMaxKB || o.maxKB > maxMaxKB:
		return fmt.Errorf("-max-kb %d is not between %d and %d", o.maxKB, minMaxKB, maxMaxKB)
	case o.timeout < time.Millisecond || o.timeout > taskTimeout/2:
		return fmt.Errorf("-timeout %s is not between 1ms and %s", o.timeout, taskTimeout/2)
	case productOf(o.agent) == "":
		return fmt.Errorf("-agent %q does not begin with a name of letters, _ and -", o.agent)
	case o.queue != "" && !validName(o.queue):
		return fmt.Errorf("-queue %q is not 1 to 64 letters, digits, _ . or -", o.queue)
	case o.plot != "" && extension != ".svg" && extension != ".png":
		return fmt.Errorf("-plot %s ends neither in .svg nor in .png", o.plot)
	}
	return nil
}

func (o *options) setLimits(requests, kilobytes string) error {
	if requests == "" {
		requests = politeRequests
		if o.bundled() {
			requests = bundledRequests
		}
	}
	if kilobytes == "" {
		kilobytes = politeKilobytes
		if o.bundled() {
			kilobytes = bundledKilobytes
		}
	}
	var err error
	if o.requests, err = parseLimits(requests, requestScopes()); err != nil {
		return fmt.Errorf("-requests: %w", err)
	}
	if o.kilobytes, err = parseLimits(kilobytes, kilobyteScopes()); err != nil {
		return fmt.Errorf("-kilobytes: %w", err)
	}
	if err := holds(o.kilobytes, o.maxKB+onTheWay); err != nil {
		return fmt.Errorf("-kilobytes: %w", err)
	}
	return nil
}

// validName tells whether a name can stand in Redis' keys as it is.
func validName(name string) bool {
	return len(name) <= 64 && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == "" && name != ""
}
