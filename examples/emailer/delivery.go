package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
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
	// retention is how long asynq remembers a delivered mail: so long a second
	// run does not send it again.
	retention = 24 * time.Hour
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
	client   *asynq.Client
	inspect  *asynq.Inspector
	shaper   *worker.Shaper
	server   *asynq.Server
	mailer   *mailer
	outcomes *outcomes
	grants   *grants
	offset   time.Duration // Redis' clock ahead of ours
	acks     *record       // takes the client's own acknowledgements; nil when the server keeps a record
}

// newDelivery wires the throttle into asynq. Nothing runs until start.
func newDelivery(o options, c *campaign, around *surroundings, watching *monitor, logger *zap.Logger) (*delivery, error) {
	rdb := around.redis
	settings := &throttle.Options{Logger: logger}
	watching.observe(settings)
	quotas, err := throttle.New("emailer", rdb, o.scopes, settings)
	if err != nil {
		return nil, err
	}
	watching.watch(quotas)
	shaper, err := worker.New(quotas, rdb, jobOf, &worker.Options{MaxWait: maxWait, Logger: logger})
	if err != nil {
		return nil, err
	}
	d := &delivery{
		campaign: c, queue: o.queue, scopes: o.scopes, shaper: shaper, mailer: around.mailer, offset: around.offset,
		client: asynq.NewClientFromRedisClient(rdb), inspect: asynq.NewInspectorFromRedisClient(rdb),
		outcomes: newOutcomes(c), grants: new(grants),
	}
	if !around.smtpInside {
		d.acks = around.record
	}
	level := asynq.ErrorLevel // mails that fail are in the report
	if o.verbose {
		level = asynq.InfoLevel
	}
	d.server = asynq.NewServerFromRedisClient(rdb, shaper.Configure(asynq.Config{
		Concurrency:    o.workers,
		Queues:         map[string]int{o.queue: 1},
		RetryDelayFunc: retryDelay,
		ErrorHandler:   asynq.ErrorHandlerFunc(d.failed),
		Logger:         logger.Named("asynq").Sugar(),
		LogLevel:       level,
	}))
	return d, nil
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
	d.grants.add(grant{start: granted.Start, mail: m})
	err := d.mailer.send(ctx, m)
	d.note(m, err)
	var refusal *refusedError
	if errors.As(err, &refusal) {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err
}

// note keeps what the server said to an attempt.
func (d *delivery) note(m *mail, err error) {
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
		d.acks.add(receipt{at: time.Now(), mail: m.id, recipients: len(m.to), reply: reply})
	}
	switch {
	case err == nil:
		d.outcomes.end(m.id, delivered, "")
	case refusal != nil:
		d.outcomes.end(m.id, refused, refusal.reason)
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

// enqueueAll hands every mail to asynq when it arrives. A mail that asynq knows
// from an earlier run is not enqueued again; the arrival of the others is over
// then, too.
func (d *delivery) enqueueAll(ctx context.Context, began time.Time) error {
	goesOn := false
	for _, m := range d.campaign.mails {
		if !goesOn && !sleepUntil(ctx, began.Add(m.at)) {
			return ctx.Err()
		}
		known, err := d.enqueue(ctx, m)
		if err != nil {
			return fmt.Errorf("enqueue mail %s: %w", m.id, err)
		}
		goesOn = goesOn || known
	}
	return nil
}

// enqueue tells whether asynq knew the mail before.
func (d *delivery) enqueue(ctx context.Context, m *mail) (known bool, err error) {
	arrived := d.now()
	task := worker.NewTask(taskType, []byte(m.id), map[string]string{
		headerWeight:  strconv.FormatInt(m.units(), 10),
		headerTenant:  m.tenant,
		headerDomain:  m.domain,
		headerArrived: strconv.FormatInt(arrived.UnixMicro(), 10),
	}, asynq.TaskID(d.taskID(m)), asynq.Queue(d.queue), asynq.MaxRetry(sendRetries), asynq.Timeout(sendTimeout), asynq.Retention(retention))
	d.outcomes.arrived(m.id, arrived)
	_, err = d.client.EnqueueContext(ctx, task)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return true, d.resume(m)
	}
	return false, err
}

// taskID is the same in each run of a campaign: asynq takes an id only once.
func (d *delivery) taskID(m *mail) string { return d.campaign.id + "-" + m.id }

// resume finds out what an earlier run did with a mail: ended it, or left it to
// this one.
func (d *delivery) resume(m *mail) error {
	info, err := d.inspect.GetTaskInfo(d.queue, d.taskID(m))
	if err != nil {
		return err
	}
	if arrived, err := strconv.ParseInt(info.Headers[headerArrived], 10, 64); err == nil {
		d.outcomes.arrived(m.id, time.UnixMicro(arrived))
	}
	switch {
	case info.State == asynq.TaskStateCompleted:
		d.outcomes.endedEarlier(m.id, delivered, "")
	case info.State == asynq.TaskStateArchived && strings.HasPrefix(info.LastErr, refusedPrefix):
		d.outcomes.endedEarlier(m.id, refused, plainReason(info.LastErr))
	case info.State == asynq.TaskStateArchived:
		d.outcomes.endedEarlier(m.id, gaveUp, plainReason(info.LastErr))
	}
	return nil
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
