// Crawler fetches pages of many hosts through asynq, politely: it keeps to budgets of
// requests and of kilobytes, and to the delays and rules that each host asks for.
//
//	go run ./examples/crawler
//
// needs no other program and no network: Redis and a small web are inside the
// process. See the README.md beside this file for what to copy and what to watch, and
// -h for the flags. Code that begins with ledger or rig serves the report and the checks:
// your own program does not need it.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/crawl"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/frontier"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// How often and for how long a page is tried.
const (
	retries     = 2 // further attempts after 5xx, or no answer
	taskTimeout = 2 * time.Minute
	// redisTimeout is long, since the Redis inside shares a machine that may be busy.
	redisTimeout = 5 * time.Second
	firstRetry   = time.Second
	// maxWait is how long a page may wait for its start in a worker, so that most pages
	// that wait up to a second are not put back.
	maxWait = time.Second
)

// retryDelay doubles with each retry. n counts the retries so far.
func retryDelay(n int, _ error, _ *asynq.Task) time.Duration { return firstRetry << min(n, 10) }

func main() { rig.Main(run) }

// run is the program: it crawls and prints the report. It ends early when ctx is
// cancelled.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := rig.New("crawler", stdout, stderr)
	defer p.Close()
	o, err := parseOptions(p, args)
	if err != nil {
		return p.Refuse(err)
	}
	c, err := open(ctx, p, o)
	if err != nil {
		return p.Refuse(err)
	}
	return p.Finish(c.run(ctx))
}

// open opens the connections that a crawl needs, and makes the crawler that uses them.
func open(ctx context.Context, p *rig.Program, o options) (*crawler, error) {
	seeds, err := crawl.OpenSeeds(o.seeds)
	if err != nil {
		return nil, err
	}
	if p.Queue == "" {
		p.Queue = "crawler-" + seeds.ID
	}
	if err := p.OpenRedis(ctx); err != nil { // connect.Open, or a Redis inside the process
		return nil, err
	}
	around, err := site.Open(p, o.bundled())
	if err != nil {
		return nil, err
	}
	c, err := newCrawler(p, o, seeds, around)
	if err != nil {
		return nil, err
	}
	if err := p.ServeDashboard(ctx, c.throttle.Name(), c.shaper.Stats); err != nil {
		return nil, err
	}
	return c, p.CheckRedis(ctx, c.throttle)
}

// crawler fetches pages. Each page is a task; the throttle counts requests and kilobytes and
// grants its start.
type crawler struct {
	options
	*rig.Program
	throttle *throttle.Throttle
	shaper   *worker.Shaper
	server   *asynq.Server
	fetcher  *fetch.Fetcher
	resolver *fetch.Resolver
	walk     *frontier.Walk // which page is next, and what an answer leads to
	ledger   *crawl.Ledger  // what was requested
	start    []crawl.Seed
}

// newCrawler wires the throttle into asynq. No page is requested until run.
func newCrawler(p *rig.Program, o options, seeds *crawl.SeedList, around *site.World) (*crawler, error) {
	c := &crawler{options: o, Program: p, resolver: around.Resolver, start: seeds.Seeds}
	c.fetcher = fetch.New(c.resolver, o.agent, o.timeout)
	p.AtClose(c.fetcher.Close)
	var err error
	if c.throttle, err = throttle.New("crawler", p.Client,
		throttleScopes(o.requests, o.kilobytes, throttle.Running(o.perHost)),
		&throttle.Options{Logger: p.Log, FairScope: scopeCustomer, Timeout: redisTimeout}); err != nil {
		return nil, err
	}
	if c.shaper, err = worker.New(c.throttle, p.Client, jobOf,
		&worker.Options{MaxWait: maxWait, Logger: p.Log}); err != nil {
		return nil, err
	}
	p.AtClose(c.shaper.Stop) // however the program ends
	c.walk = frontier.NewWalk(p, c, frontier.Bounds{Depth: o.depth, HostPages: o.hostPages, MaxKB: o.maxKB,
		Agent: robots.Product(o.agent)})
	c.ledger = crawl.New(p, seeds, around, c.walk, o.requests, o.kilobytes,
		crawl.Connections{Limit: throttle.Running(o.perHost), Cooldown: o.cooldown})
	c.server = asynq.NewServerFromRedisClient(p.Client, c.shaper.Configure(asynq.Config{
		Concurrency:    p.Workers,
		Queues:         map[string]int{p.Queue: 1},
		RetryDelayFunc: retryDelay,
		ErrorHandler:   c.walk,
		Logger:         p.Log.Named("asynq").Sugar(),
		LogLevel:       p.LogLevel(),
	}))
	return c, nil
}

// run crawls and waits until the crawl or ctx ends.
func (c *crawler) run(ctx context.Context) (*crawl.Report, error) {
	c.ledger.Begin(c.shaper)
	err := c.work(ctx)
	c.shaper.Stop()     // pages that wait for their start go back to asynq at once
	c.server.Shutdown() // pages that are being fetched are finished
	return c.ledger.Report(ctx, err)
}

// work starts the workers, and enqueues the seeds and the pages that an earlier run did not
// finish.
func (c *crawler) work(ctx context.Context) error {
	if err := c.server.Start(c.shaper.Wrap(asynq.HandlerFunc(c.visit))); err != nil {
		return fmt.Errorf("asynq: %w", err)
	}
	for _, s := range c.start {
		if err := c.walk.Found(ctx, s.URL, frontier.Page{Customer: s.Customer}); err != nil {
			return err
		}
	}
	if err := c.walk.Mend(ctx); err != nil {
		return err
	}
	return c.ledger.Wait(ctx)
}
