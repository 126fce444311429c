package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// taskType is the type of the asynq tasks that stand for a mail each. Its
// payload is the mail's id; what the throttle needs is in the headers.
const taskType = "mail:send"

// The headers of a task.
const (
	headerWeight  = "weight"
	headerTenant  = "tenant"
	headerDomain  = "domain"
	headerArrived = "arrived" // microseconds since 1970, Redis' clock
)

// How a mail is tried.
const (
	sendRetries = 5 // after a 4xx or a broken connection
	sendTimeout = time.Minute
	// maxWait lets mails be woken well before their slot, so that a busy
	// machine does not make them late. It takes more workers, which are cheap:
	// where fewer mails are in hand than start in this time, the others wait in
	// asynq's queue, before the line, and no tenant has its turn.
	maxWait = time.Second
)

// retryDelay is short, since the campaign is: greylisting servers out there
// want minutes. n counts the retries so far.
func retryDelay(n int, _ error, _ *asynq.Task) time.Duration {
	return min(2*time.Second<<min(n, 10), time.Minute)
}

// delivery sends one campaign: it enqueues the mails, and its workers send
// them when the throttle grants a start.
type delivery struct {
	campaign *campaign
	queue    string
	scopes   []throttle.Scope
	quotas   *throttle.Throttle
	planner  *worker.Client // nil: mails are enqueued without a plan
	client   *asynq.Client
	inspect  *asynq.Inspector
	shaper   *worker.Shaper
	server   *asynq.Server
	mailer   *mailer
	known    map[*mail]bool // asynq has them from an earlier run
	outcomes *outcomes
	grants   *grants
	plan     *plan
	pauses   *pauses
	warming  *warming
	offset   time.Duration // Redis' clock ahead of ours
	closed   time.Duration // how long a domain stays closed that asks to wait; 0: as worker.SMTPWait has it
	acks     *record       // takes the client's own acknowledgements; nil when the server keeps a record
	say      func(format string, args ...any)
}

// newDelivery wires the throttle into asynq. Nothing runs until start.
func newDelivery(o options, c *campaign, around *surroundings, watching *monitor, show progress, logger *zap.Logger) (*delivery, error) {
	rdb := around.redis
	d := &delivery{
		campaign: c, queue: o.queue, scopes: o.scopes, mailer: around.mailer, offset: around.offset,
		client: asynq.NewClientFromRedisClient(rdb), inspect: asynq.NewInspectorFromRedisClient(rdb),
		known: make(map[*mail]bool), outcomes: newOutcomes(c), grants: new(grants), plan: newPlan(), say: show.say,
	}
	d.pauses = &pauses{Observer: watching.collector, now: d.now}
	var err error
	if d.quotas, err = throttle.New("emailer", rdb, o.scopes, &throttle.Options{Observer: d.pauses, Logger: logger}); err != nil {
		return nil, err
	}
	watching.watch(d.quotas)
	settings := &worker.Options{MaxWait: maxWait, Logger: logger}
	if d.shaper, err = worker.New(d.quotas, rdb, jobOf, settings); err != nil {
		return nil, err
	}
	if o.plan {
		if d.planner, err = worker.NewClient(d.quotas, rdb, jobOf, settings); err != nil {
			return nil, err
		}
	}
	d.warming = &warming{quotas: d.quotas, now: d.now, say: d.say}
	if o.warmup.among(c) {
		d.warming.warmup = o.warmup
	}
	if around.smtpInside {
		d.closed = closedFor
	} else {
		d.acks = around.record
	}
	d.server = d.newServer(o, rdb, logger)
	return d, nil
}

func (d *delivery) newServer(o options, rdb redis.UniversalClient, logger *zap.Logger) *asynq.Server {
	level := asynq.ErrorLevel // mails that fail are in the report
	if o.verbose {
		level = asynq.InfoLevel
	}
	return asynq.NewServerFromRedisClient(rdb, d.shaper.Configure(asynq.Config{
		Concurrency:    o.workers,
		Queues:         map[string]int{o.queue: 1},
		RetryDelayFunc: retryDelay,
		ErrorHandler:   asynq.ErrorHandlerFunc(d.failed),
		Logger:         logger.Named("asynq").Sugar(),
		LogLevel:       level,
	}))
}

// start lets the workers begin.
func (d *delivery) start() error {
	mux := asynq.NewServeMux()
	mux.Use(d.shaper.Wrap)
	mux.HandleFunc(taskType, d.send)
	if err := d.server.Start(mux); err != nil {
		return fmt.Errorf("asynq: %w", err)
	}
	return nil
}

// stop ends the workers. Mails in hand are finished; those waiting for their
// start go back to asynq at once.
func (d *delivery) stop() {
	d.shaper.Stop()
	d.server.Shutdown()
}

// jobOf tells the throttle what a task takes, from its headers.
func jobOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	headers := task.Headers()
	weight, err := strconv.ParseInt(headers[headerWeight], 10, 64)
	if err != nil {
		return throttle.Job{}, fmt.Errorf("emailer: header %s %q is not an integer", headerWeight, headers[headerWeight])
	}
	return throttle.Job{
		Weight: weight,
		Keys:   map[string]string{scopeTenant: headers[headerTenant], scopeDomain: headers[headerDomain]},
	}, nil
}

// send is the handler of a task: it runs at the start that was granted.
func (d *delivery) send(ctx context.Context, task *asynq.Task) error {
	m := d.campaign.byID[string(task.Payload())]
	if m == nil {
		return fmt.Errorf("emailer: no mail %q in this campaign: %w", task.Payload(), asynq.SkipRetry)
	}
	granted, ok := worker.Grant(ctx)
	if !ok {
		return fmt.Errorf("emailer: mail %s came without a grant: %w", m.id, asynq.SkipRetry)
	}
	retried, _ := asynq.GetRetryCount(ctx)
	d.outcomes.tried(m.id, retried)
	started := d.grants.add(grant{start: granted.Start, decided: granted.Now, mail: m})
	err := d.mailer.send(ctx, m)
	wait := d.asksToWait(err)
	d.note(m, err, wait != nil)
	var refusal *refusedError
	switch {
	case wait != nil:
		d.grants.giveBack(started) // as the shaper does with the charge
		return wait
	case errors.As(err, &refusal):
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err
}

// asksToWait returns the error by which the mail's whole domain is left alone, if
// the server asks for that, and nil if not. The bundled server is over with it
// sooner than those out there.
func (d *delivery) asksToWait(err error) error {
	wait := worker.SMTPWait(scopeDomain, err)
	if wait != nil && d.closed > 0 {
		return worker.AskedToWait(scopeDomain, d.closed, err)
	}
	return wait
}

// note keeps what the server said to an attempt; closed tells that it asked to wait.
func (d *delivery) note(m *mail, err error, closed bool) {
	var refusal *refusedError
	var later *deferredError
	reply := replyNone
	switch {
	case err == nil:
		reply = replyAccepted
	case errors.As(err, &refusal):
		reply = refusal.code
	case errors.As(err, &later):
		reply = later.code
	}
	if d.acks != nil && reply != replyNone {
		d.acks.add(receipt{at: time.Now(), mail: m.id, recipients: len(m.to), reply: reply, closed: closed})
	}
	switch {
	case err == nil:
		d.outcomes.end(m.id, delivered, "")
	case refusal != nil:
		d.outcomes.end(m.id, refused, refusal.reason)
	case closed:
		d.outcomes.held(m.id)
	case later != nil:
		d.outcomes.deferred(m.id, later.reason)
	}
}

// failed is asynq's error handler. It hears of every failed attempt (the
// throttle's denials are kept from it), and ends the mails that get no other.
func (d *delivery) failed(ctx context.Context, task *asynq.Task, err error) {
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	id := string(task.Payload())
	if d.campaign.byID[id] != nil && (errors.Is(err, asynq.SkipRetry) || retried >= most) {
		d.outcomes.end(id, gaveUp, plainReason(err.Error()))
	}
}

// plainReason is an error's text without what was added for asynq.
func plainReason(text string) string {
	return strings.TrimSuffix(strings.TrimPrefix(text, refusedPrefix), ": "+asynq.SkipRetry.Error())
}

// vanished tells whether mails are left for which asynq has no task any more,
// such as after a person deleted them.
func (d *delivery) vanished() bool {
	info, err := d.inspect.GetQueueInfo(d.queue)
	return err == nil && info.Size == 0 && d.outcomes.left() > 0
}

// now is the time on Redis' clock.
func (d *delivery) now() time.Time { return time.Now().Add(d.offset) }

// sleepUntil waits for an instant of the local clock; false if ctx ended.
func sleepUntil(ctx context.Context, instant time.Time) bool {
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
