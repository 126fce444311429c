package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// taskType is the type of the asynq tasks that stand for a host's turn each.
const taskType = "page:fetch"

// The headers of a task: what the throttle needs.
const (
	headerCharge   = "charge" // kilobytes
	headerHost     = scopeHost
	headerSite     = scopeSite
	headerIP       = scopeIP
	headerCustomer = scopeCustomer
)

// How a page is tried.
const (
	retries     = 2 // after 5xx, or no answer
	taskTimeout = 2 * time.Minute
	firstRetry  = time.Second
	// maxWait is how long a page may wait for its start in a worker, so that most of
	// those that wait for a second are not put back at all.
	maxWait = time.Second
)

// retryDelay is doubled with each retry. n counts the retries so far.
func retryDelay(n int, _ error, _ *asynq.Task) time.Duration { return firstRetry << min(n, 10) }

// crawl fetches pages: each is a task that a throttle lets start, which counts requests
// and kilobytes.
type crawl struct {
	options  options
	frontier *frontier
	fetcher  *fetcher
	resolver *resolver
	throttle *throttle.Throttle
	shaper   *worker.Shaper
	client   *asynq.Client
	inspect  *asynq.Inspector
	server   *asynq.Server
	log      *zap.Logger
	visits   visits
	offset   time.Duration // Redis' clock ahead of ours
	accesses *accessLog    // takes what the client saw; nil when the servers keep a log
	perHost  []throttle.Limit
}

// newCrawl wires the throttle into asynq. Nothing runs until start.
func newCrawl(o options, around *surroundings, logger *zap.Logger) (*crawl, error) {
	rdb := around.redis
	th, err := throttle.New("crawler", rdb, throttleScopes(o.requests, o.kilobytes), &throttle.Options{Logger: logger, FairScope: scopeCustomer})
	if err != nil {
		return nil, err
	}
	shaper, err := worker.New(th, rdb, jobOf, &worker.Options{MaxWait: maxWait, Logger: logger})
	if err != nil {
		return nil, err
	}
	c := &crawl{
		options: o, frontier: newFrontier(rdb, o.queue), fetcher: around.fetcher, resolver: around.resolver,
		throttle: th, shaper: shaper, client: asynq.NewClientFromRedisClient(rdb),
		inspect: asynq.NewInspectorFromRedisClient(rdb), log: logger,
		offset: around.offset, perHost: limitsOf(o.requests, scopeHost),
	}
	if !around.serversLog {
		c.accesses = around.accesses
	}
	level := asynq.ErrorLevel // pages that fail are in the report
	if o.verbose {
		level = asynq.InfoLevel
	}
	c.server = asynq.NewServerFromRedisClient(rdb, shaper.Configure(asynq.Config{
		Concurrency: o.workers, Queues: map[string]int{o.queue: 1}, RetryDelayFunc: retryDelay,
		ErrorHandler: asynq.ErrorHandlerFunc(c.failed), Logger: logger.Named("asynq").Sugar(), LogLevel: level,
	}))
	return c, nil
}

// start lets the workers take pages, and gives those to asynq that the seeds and an
// earlier run leave to do.
func (c *crawl) start(ctx context.Context, seeds []seed) error {
	if err := c.server.Start(c.shaper.Wrap(asynq.HandlerFunc(c.visit))); err != nil {
		return err
	}
	for _, s := range seeds {
		if err := c.found(ctx, s.url, page{Customer: s.customer}); err != nil {
			return err
		}
	}
	return c.mend(ctx)
}

// stop ends the workers. Pages in hand are finished; those waiting for their start
// go back to asynq at once.
func (c *crawl) stop() {
	c.shaper.Stop()
	c.server.Shutdown()
}

// putBacks is how often a page was put back.
func (c *crawl) putBacks() int64 { return c.shaper.Stats().Denied }

// mend gives asynq the turns that it has no task for: those of a process that died
// in between, or whose task a person has deleted.
func (c *crawl) mend(ctx context.Context) error {
	hosts, err := c.frontier.busy(ctx)
	if err != nil {
		return fmt.Errorf("crawler: busy hosts: %w", err)
	}
	for _, host := range hosts {
		t, err := c.frontier.turn(ctx, host)
		if err != nil {
			return err
		}
		if t == nil || c.given(t) {
			continue
		}
		if err := c.take(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// given tells whether asynq has a task for a turn.
func (c *crawl) given(t *turn) bool {
	_, err := c.inspect.GetTaskInfo(c.options.queue, t.taskID())
	return !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound)
}

// found makes a page known, and lets its host take its turn if it had none.
func (c *crawl) found(ctx context.Context, u *url.URL, p page) error {
	p.URL = u.String()
	rules := &page{URL: robotsURL(u).String(), Customer: p.Customer, Robots: true}
	t, err := c.frontier.add(ctx, u.Host, &p, rules, c.options.hostPages)
	if err != nil {
		return err
	}
	return c.take(ctx, t)
}

// take gives a host's turn to asynq. A page that may not be requested is ended, and
// the next one has the turn.
func (c *crawl) take(ctx context.Context, t *turn) error {
	for t != nil {
		task, err := c.task(ctx, t)
		if err != nil {
			return err
		}
		if task != nil {
			_, err = c.client.EnqueueContext(ctx, task)
			if errors.Is(err, asynq.ErrTaskIDConflict) {
				return nil // it has been given
			}
			return err
		}
		if t.page.over() {
			t, err = c.frontier.end(ctx, t)
		} else {
			t, err = c.frontier.rulesFirst(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// task is the asynq task for a turn. It is nil if the page has been ended instead,
// since it may not be requested, or if the rules of its host have to come first.
func (c *crawl) task(ctx context.Context, t *turn) (*asynq.Task, error) {
	u, err := t.page.target()
	if err != nil {
		return nil, err
	}
	addr, err := c.resolver.address(ctx, u.Hostname())
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		how := endFailed
		if errors.Is(err, errForbiddenAddress) {
			how = endBlocked
		}
		return nil, c.giveUp(ctx, t.page, how, err.Error())
	}
	if may, err := c.may(ctx, t.page, u); err != nil || !may {
		return nil, err
	}
	notes, err := c.frontier.notes(ctx, t.host)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(ticket{Host: t.host, Turn: t.number})
	if err != nil {
		return nil, err
	}
	return worker.NewTask(taskType, payload, map[string]string{
		headerCharge: strconv.FormatInt(c.charge(t.page, notes), 10), headerHost: u.Host, headerSite: siteOf(u),
		headerIP: addr.String(), headerCustomer: t.page.Customer,
	}, asynq.TaskID(t.taskID()), asynq.Queue(c.options.queue), asynq.MaxRetry(retries), asynq.Timeout(taskTimeout)), nil
}

// may tells whether a page may be requested by its host's robots.txt. If that
// forbids it, the page is ended; if it is not known, or too old, it is not.
func (c *crawl) may(ctx context.Context, p *page, u *url.URL) (bool, error) {
	if p.Robots {
		return true, nil
	}
	text, known, err := c.frontier.robots(ctx, originOf(u))
	if err != nil || !known {
		return false, err
	}
	if parseRobots(text, productOf(c.options.agent)).allows(u.RequestURI()) {
		return true, nil
	}
	p.end(endForbidden, "by robots.txt")
	return false, nil
}

// giveUp ends a page that is not to be had. If it is a robots.txt, nothing of its
// host may be requested.
func (c *crawl) giveUp(ctx context.Context, p *page, how, reason string) error {
	p.end(how, reason)
	if !p.Robots {
		return nil
	}
	u, err := p.location()
	if err != nil {
		return err
	}
	return c.frontier.setRobots(ctx, originOf(u), disallowAll)
}

// firstEstimate is how many kilobytes a host's first page is taken for.
const firstEstimate = 32

// charge is how many kilobytes a page is charged before it is fetched: a quarter
// more than the largest of its host so far, since pages of one host are alike; or
// what it has turned out to have. The reading stops before the charge is used up.
func (c *crawl) charge(p *page, notes hostNotes) int64 {
	kb := p.KB
	if kb == 0 {
		kb = max(firstEstimate, notes.Largest*5/4)
	}
	return min(kb, c.options.maxKB) + onTheWay
}

// jobOf tells the throttle what a task takes: one request and so many kilobytes.
func jobOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	headers := task.Headers()
	kb, err := strconv.ParseInt(headers[headerCharge], 10, 64)
	if err != nil {
		return throttle.Job{}, fmt.Errorf("crawler: header %s %q is not an integer", headerCharge, headers[headerCharge])
	}
	keys := map[string]string{scopeAllRequests: scopeAllRequests, scopeHostKilobytes: headers[headerHost]}
	for _, scope := range []string{scopeHost, scopeSite, scopeIP, scopeCustomer} {
		keys[scope] = headers[scope]
	}
	return throttle.Job{Weight: 1, Costs: kilobyteCosts(kb), Keys: keys}, nil
}
