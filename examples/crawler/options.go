package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Bounds of the values on the command line.
const (
	minMaxKB = 500     // a crawler must read this much of a robots.txt
	maxMaxKB = 1 << 20 // kilobytes

	maxPerHost  = 1000
	maxCooldown = 100
)

// options are the flags of this example; the rig has those of all examples.
type options struct {
	seeds     string           // CSV file; empty for the bundled web
	requests  []throttle.Scope // limits in requests
	kilobytes []throttle.Scope // limits in kilobytes
	agent     string           // the User-Agent header
	depth     int              // how many links from a start page are followed
	hostPages int              // the most pages of one host
	perHost   int64            // the most requests under way to one address
	cooldown  float64          // an address rests for this multiple of the time its last page took
	maxKB     int64            // the most kilobytes of one page
	timeout   time.Duration    // the time limit of one request
}

// bundled reports whether the web inside the process is crawled.
func (o *options) bundled() bool { return o.seeds == "" }

// parseOptions reads the command line.
func parseOptions(p *rig.Program, args []string) (options, error) {
	var o options
	flags := p.Flags("fetches pages through asynq, shaped under budgets and by what each host asks for.", "pages",
		"crawls anew (default: after the seeds)")
	flags.StringVar(&o.seeds, "seeds", "",
		"CSV `file` with customers and start pages of the real web (default: a web inside the process)")
	requests := flags.String("requests", "",
		"limits in requests, `scope=units/window,…;…` (default "+bundledRequests+"; with -seeds "+politeRequests+")")
	kilobytes := flags.String("kilobytes", "",
		"limits in kilobytes, `scope=units/window,…;…` (default "+bundledKilobytes+"; with -seeds "+politeKilobytes+")")
	flags.StringVar(&o.agent, "agent", "crawler-example",
		"`User-Agent` header; robots.txt is read for the name it begins with")
	flags.IntVar(&o.depth, "depth", 8, "how many links away from a start page")
	flags.IntVar(&o.hostPages, "host-pages", 30, "how many pages of one host")
	flags.Int64Var(&o.perHost, "per-host", 1, "how many connections to one address at once")
	flags.Float64Var(&o.cooldown, "cooldown", 0,
		"let an address rest for `k` times as long as its last page took, 30 s at most")
	flags.Int64Var(&o.maxKB, "max-kb", 512, "how many kilobytes of one page")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "of one request, the body included")
	if err := p.Parse(flags, args); err != nil {
		return o, err
	}
	if err := o.check(); err != nil {
		return o, err
	}
	err := o.setLimits(*requests, *kilobytes)
	return o, err
}

func (o *options) check() error {
	switch {
	case o.depth < 0:
		return fmt.Errorf("-depth %d is less than 0", o.depth)
	case o.hostPages < 1:
		return fmt.Errorf("-host-pages %d is less than 1", o.hostPages)
	case o.perHost < 1 || o.perHost > maxPerHost:
		return fmt.Errorf("-per-host %d is not between 1 and %d", o.perHost, maxPerHost)
	case !(o.cooldown >= 0 && o.cooldown <= maxCooldown):
		return fmt.Errorf("-cooldown %g is not between 0 and %d", o.cooldown, maxCooldown)
	case o.maxKB < minMaxKB || o.maxKB > maxMaxKB:
		return fmt.Errorf("-max-kb %d is not between %d and %d", o.maxKB, minMaxKB, maxMaxKB)
	case o.timeout < time.Millisecond || o.timeout > taskTimeout/2:
		return fmt.Errorf("-timeout %s is not between 1ms and %s", o.timeout, taskTimeout/2)
	case robots.Product(o.agent) == "":
		return fmt.Errorf("-agent %q does not begin with a name of letters, _ and -", o.agent)
	}
	return nil
}

func (o *options) setLimits(requests, kilobytes string) (err error) {
	defaultRequests, defaultKilobytes := politeRequests, politeKilobytes
	if o.bundled() {
		defaultRequests, defaultKilobytes = bundledRequests, bundledKilobytes
	}
	if o.requests, err = rig.ParseLimits(cmp.Or(requests, defaultRequests), requestScopes...); err != nil {
		return fmt.Errorf("-requests: %w", err)
	}
	if o.kilobytes, err = rig.ParseLimits(cmp.Or(kilobytes, defaultKilobytes), kilobyteScopes...); err != nil {
		return fmt.Errorf("-kilobytes: %w", err)
	}
	if err = holds(o.kilobytes, o.maxKB+fetch.OnTheWay); err != nil {
		return fmt.Errorf("-kilobytes: %w", err)
	}
	o.requests, o.kilobytes = rig.WithMargin(o.requests, margin), rig.WithMargin(o.kilobytes, margin)
	return nil
}

// holds refuses limits under which a page of kb kilobytes may never start.
func holds(scopes []throttle.Scope, kb int64) error {
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			if limit.Units != throttle.Unlimited && limit.Units < kb {
				return fmt.Errorf(
					"the %s limit %s is less than the %d KB that one page is charged at most (-max-kb and %d for what is on the way)",
					scope.Name, limit, kb, fetch.OnTheWay)
			}
		}
	}
	return nil
}
