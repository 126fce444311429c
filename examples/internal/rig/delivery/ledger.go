// Package delivery says what became of the mails of a campaign. A Ledger keeps account while
// the emailer runs; its Report compares the account with the SMTP server's record: what was
// delivered, how long it took, and whether every limit and pause was kept.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// vanishedEvery is how often a run finds out whether the tasks of all mails that are left were deleted.
const vanishedEvery = 5 * time.Second

// HeaderArrived is the header with a mail's arrival, in microseconds since 1970 on
// Redis' clock.
const HeaderArrived = "arrived"

// Ledger keeps account of the mails of a campaign. It is safe for concurrent use, except for
// Resume.
type Ledger struct {
	program  *rig.Program
	campaign *campaign.Campaign
	mailer   *smtp.Mailer
	scopes   []throttle.Scope
	atOnce   throttle.Limit // limits the mails that are being sent to one domain
	throttle *throttle.Throttle
	shaper   *worker.Shaper
	inspect  *asynq.Inspector
	known    map[*campaign.Mail]bool // asynq has them from an earlier run
	outcomes outcomes
	grants   *grants
	plan     *plan
	pauses   *pauses
	began    time.Time

	shown                 int // how many pauses the progress has shown
	interrupted, vanished bool

	mu      sync.Mutex
	changes []check.Change
}

// New returns an empty ledger. The scopes are the throttle's scopes that count recipients;
// atOnce limits the mails that are being sent to one domain.
func New(p *rig.Program, c *campaign.Campaign, m *smtp.Mailer, scopes []throttle.Scope, atOnce throttle.Limit) *Ledger {
	p.ShowProgress()
	return &Ledger{
		program: p, campaign: c, mailer: m, scopes: scopes, atOnce: atOnce,
		inspect: asynq.NewInspectorFromRedisClient(p.Client),
		known:   make(map[*campaign.Mail]bool), outcomes: newOutcomes(c), grants: new(grants), plan: newPlan(),
		pauses: &pauses{now: p.Now},
		began:  time.Now(),
	}
}

// Observe returns an observer that notes the throttle's pauses and passes all events on to
// another observer.
func (l *Ledger) Observe(other throttle.Observer) throttle.Observer {
	l.pauses.Observer = other
	return l.pauses
}

// Watch makes the ledger ask a throttle and a shaper for the progress.
func (l *Ledger) Watch(th *throttle.Throttle, shaper *worker.Shaper) {
	l.throttle, l.shaper = th, shaper
}

// Resume finds out which mails an earlier run has ended, and returns the others in batches,
// by their arrival. After an earlier run they are one batch, which has arrived.
func (l *Ledger) Resume() ([][]*campaign.Mail, error) {
	ids := make([]string, len(l.campaign.Mails))
	for i, m := range l.campaign.Mails {
		ids[i] = l.campaign.TaskID(m)
	}
	tasks, err := account.Tasks(l.inspect, l.program.Queue, ids)
	if err != nil {
		return nil, err
	}
	var left []*campaign.Mail
	for i, m := range l.campaign.Mails {
		if info := tasks[ids[i]]; info == nil || !l.recall(m, info) {
			left = append(left, m)
		}
	}
	return together(left, len(l.known) > 0), nil
}

// recall notes what an earlier run did with a mail. It returns false if the mail has not ended.
func (l *Ledger) recall(m *campaign.Mail, info *asynq.TaskInfo) (ended bool) {
	if arrived, err := strconv.ParseInt(info.Headers[HeaderArrived], 10, 64); err == nil {
		l.outcomes.arrived(m.ID, time.UnixMicro(arrived))
	}
	l.known[m] = true
	switch {
	case info.State == asynq.TaskStateCompleted:
		l.outcomes.end(m.ID, delivered, "", true)
	case info.State == asynq.TaskStateArchived && strings.HasPrefix(info.LastErr, smtp.RefusedPrefix):
		l.outcomes.end(m.ID, refused, plainReason(info.LastErr), true)
	case info.State == asynq.TaskStateArchived:
		l.outcomes.end(m.ID, gaveUp, plainReason(info.LastErr), true)
	default:
		return false
	}
	return true
}

// together cuts the mails into batches that arrive at the same time. If an earlier run has
// begun with them, there is one batch.
func together(mails []*campaign.Mail, resumed bool) [][]*campaign.Mail {
	var batches [][]*campaign.Mail
	for i, m := range mails {
		if i == 0 || !resumed && m.At != mails[i-1].At {
			batches = append(batches, nil)
		}
		last := len(batches) - 1
		batches[last] = append(batches[last], m)
	}
	return batches
}

// Begin notes that the run begins now, and returns the current time.
func (l *Ledger) Begin() time.Time {
	l.began = time.Now()
	return l.began
}

// Fresh returns the mails that no earlier run has enqueued, without the mails that never fit
// their limits.
func (l *Ledger) Fresh(mails []*campaign.Mail) []*campaign.Mail {
	return slices.DeleteFunc(slices.Clone(mails), func(m *campaign.Mail) bool { return l.known[m] || !fits(m, l.scopes) })
}

// Foretold notes and shows when the last of the mails is expected to start, before they are
// enqueued.
func (l *Ledger) Foretold(mails int, told inspect.Forecast) {
	l.plan.foretold(told)
	what := "mails"
	if len(l.known) > 0 {
		what = "mails behind those of an earlier run"
	}
	l.program.Progress.Say("forecast: %d %s, the last is expected at +%.1f s", mails, what,
		told.Last.Sub(told.Now).Seconds())
}

// Arrived notes when mails are enqueued.
func (l *Ledger) Arrived(mails []*campaign.Mail, at time.Time) {
	for _, m := range mails {
		if !l.known[m] {
			l.outcomes.arrived(m.ID, at)
		}
	}
}

// Planned notes the plan of a mail that was enqueued, at the beginning or later.
func (l *Ledger) Planned(m *campaign.Mail, told worker.Planned, later bool) {
	l.plan.planned(m, told, later)
}

// GaveUp notes that a mail will never be sent.
func (l *Ledger) GaveUp(m *campaign.Mail, why error) {
	l.outcomes.end(m.ID, gaveUp, why.Error(), false)
}

// LimitChanged notes that a scope key has other limits. The instant is on Redis' clock, before
// the call that set them. Nil stands for the scope's limits.
func (l *Ledger) LimitChanged(at time.Time, scope, key string, limits []throttle.Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = append(l.changes, check.Change{At: at, Scope: scope, Key: key, Limits: limits})
}

// Wrap notes each attempt of a handler: its granted start, and the server's reply. It belongs
// inside the shaper's middleware. When the bundled server asks to wait, Wrap shortens the
// wait, because real servers ask for longer than the campaign lasts.
func (l *Ledger) Wrap(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		m := l.campaign.ByID[string(task.Payload())]
		if m == nil {
			return next.ProcessTask(ctx, task)
		}
		granted, ok := worker.Grant(ctx)
		if !ok {
			return fmt.Errorf("delivery: mail %s came without a grant: %w", m.ID, asynq.SkipRetry)
		}
		retried, _ := asynq.GetRetryCount(ctx)
		l.outcomes.tried(m.ID, retried)
		number := l.grants.Add(grant{start: granted.Start, decided: granted.Now, mail: m})
		began := time.Now()
		err := next.ProcessTask(ctx, task)
		var wait *worker.WaitError
		asked := errors.As(err, &wait)
		l.note(m, began, err, asked)
		if !asked {
			return err
		}
		l.grants.giveBack(number) // as the shaper does with the charge
		if l.mailer.Inside {
			return worker.AskedToWait(wait.Scope, smtp.ClosedFor, wait.Err)
		}
		return err
	})
}

// note keeps the server's reply to an attempt; closed is set if the server asked to wait.
func (l *Ledger) note(m *campaign.Mail, began time.Time, err error, closed bool) {
	var refusal *smtp.RefusedError
	var later *smtp.DeferredError
	reply := smtp.ReplyNone
	switch {
	case err == nil:
		reply = smtp.ReplyAccepted
	case errors.As(err, &refusal):
		reply = refusal.Code
	case errors.As(err, &later):
		reply = later.Code
	}
	if !l.mailer.Inside && reply != smtp.ReplyNone {
		l.mailer.Record.Add(smtp.Receipt{Began: began, At: time.Now(), Mail: m.ID, Recipients: len(m.To),
			Reply: reply, Closed: closed})
	}
	switch {
	case err == nil:
		l.outcomes.end(m.ID, delivered, "", false)
	case refusal != nil:
		l.outcomes.end(m.ID, refused, refusal.Reason, false)
	case closed:
		l.outcomes.held(m.ID)
	case later != nil:
		l.outcomes.deferred(m.ID, later.Reason)
	}
}

// HandleError implements asynq.ErrorHandler. asynq calls it for every failed attempt,
// without the throttle's put-backs. It ends the mails that get no other attempt.
func (l *Ledger) HandleError(ctx context.Context, task *asynq.Task, err error) {
	if id := string(task.Payload()); account.IsLast(ctx, err) {
		l.outcomes.end(id, gaveUp, plainReason(err.Error()), false)
	}
}

// plainReason returns an error's text without what was added for asynq and for the ledger.
func plainReason(text string) string {
	return account.PlainReason(strings.TrimPrefix(text, smtp.RefusedPrefix))
}

// Wait shows the progress until all mails have ended, ctx has, the enqueuing failed, or
// asynq has nothing more to do. Enqueued gets what became of the enqueuing.
func (l *Ledger) Wait(ctx context.Context, enqueued <-chan error) (err error) {
	expecting, cancel := context.WithCancel(ctx)
	var aside sync.WaitGroup
	aside.Go(func() { l.expectEnds(expecting) })
	err = account.Watch{
		Done: l.outcomes.Done(), Enqueued: enqueued, Show: l.show, Every: vanishedEvery,
		Look: func(context.Context) bool {
			l.vanished = l.isEmpty()
			return l.vanished
		},
	}.Wait(ctx)
	cancel()
	aside.Wait()
	l.program.Progress.Finish()
	l.interrupted = ctx.Err() != nil
	return err
}

// expectEnds asks now and then when the last mail will start.
func (l *Ledger) expectEnds(ctx context.Context) {
	for rig.SleepUntil(ctx, time.Now().Add(l.plan.again(l.program.Now()))) {
		if err := l.plan.expect(ctx, l.throttle, l.grants.started()); err != nil && ctx.Err() == nil {
			l.program.Progress.Say("%v", err)
		}
	}
}

// isEmpty reports whether mails are left but asynq has no more tasks, for example because an
// operator deleted them.
func (l *Ledger) isEmpty() bool {
	info, err := l.inspect.GetQueueInfo(l.program.Queue)
	return err == nil && info.Size == 0 && l.outcomes.Left() > 0
}

// show shows the pauses that began since its last call, and the progress.
func (l *Ledger) show(context.Context) (over bool) {
	pauses := l.pauses.all()
	for _, p := range pauses[l.shown:] {
		l.program.Progress.Say("%s asks to wait: nothing starts to it for %.1f s", p.domain, p.until.Sub(p.known).Seconds())
	}
	l.shown = len(pauses)
	l.program.Progress.Show(l.snapshot())
	return false
}

func (l *Ledger) snapshot() rig.Snapshot {
	all := len(l.campaign.Mails)
	pace := fmt.Sprintf("put back %d times, %d units in the last second", l.shaper.Stats().PutBack,
		l.grants.unitsSince(l.program.Now().Add(-time.Second)))
	if last := l.plan.last(); !last.IsZero() {
		if at := last.Sub(l.began.Add(l.program.Offset)); at > 0 {
			pace += fmt.Sprintf(", the last start expected at +%.1f s", at.Seconds())
		}
	}
	return rig.Snapshot{Elapsed: time.Since(l.began), All: int64(all), Ended: int64(all - l.outcomes.Left()),
		What: "mails", Pace: pace}
}

// result gathers the result of the run, with the receipts on Redis' clock.
func (l *Ledger) result() result {
	receipts := l.mailer.Record.All()
	for i := range receipts {
		receipts[i].Began, receipts[i].At = receipts[i].Began.Add(l.program.Offset), receipts[i].At.Add(l.program.Offset)
	}
	used, returned := l.grants.all()
	l.mu.Lock()
	defer l.mu.Unlock()
	return result{
		campaign: l.campaign, queue: l.program.Queue, law: check.Law{Scopes: l.scopes, Changes: l.changes},
		atOnce: l.atOnce, began: l.began.Add(l.program.Offset),
		outcomes: l.outcomes.All(), granted: used, returned: returned, pauses: l.pauses.all(), expected: l.plan.all(),
		receipts: receipts, recordOf: l.mailer.RecordOf(), putBacks: l.shaper.Stats().PutBack, inside: l.program.Inside(),
		interrupted: l.interrupted, vanished: l.vanished,
	}
}

// Report is the summary of a run, and what it was made of.
type Report struct {
	Summary
	of result
}

// Report reports what became of the mails. If failed is not nil, the run is not well.
func (l *Ledger) Report(failed error) *Report {
	r := l.result()
	r.firstCome = firstCome(r)
	s := summarize(r)
	s.OK = s.OK && failed == nil
	return &Report{s, r}
}

// Well reports whether every mail arrived exactly once or was refused for good, and no
// limit or pause was broken.
func (r *Report) Well() bool { return r.OK }

// Write prints the report for a person.
func (r *Report) Write(w io.Writer) { writeReport(w, r.Summary) }

// Plot draws the run into a file, as PNG or SVG by its name.
func (r *Report) Plot(path string) error { return writePlot(path, r.of) }
