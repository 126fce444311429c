package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

func badReply(script string) error {
	return fmt.Errorf("throttle: script %s gave an answer that is none of its own: %w", script, ErrState)
}

func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }

// answered passes the stamp of a readable answer to the line's timer. Otherwise it returns the
// error of the script's answer.
func (t *setup) answered(script string, at wire.Stamp, err error) error {
	if err != nil {
		return badReply(script)
	}
	t.line.heard(at)
	return nil
}

// done reads the answer of a script that says for each job whether something was done.
func (t *setup) done(script string, reply any, want int) (wire.Done, error) {
	d, err := wire.ReadDone(reply, want)
	return d, t.answered(script, d.Stamp, err)
}

// decisions reads the answer of reserve: an Answer for each order, or only for the first ones if
// the call had used up its steps before it looked at the others.
func (t *setup) decisions(reply any, orders []*order) ([]Answer, error) {
	d, err := wire.ReadDecisions(reply)
	if n := len(d.Answers); err == nil && (n > len(orders) || n < min(1, len(orders))) {
		err = wire.ErrUnreadable
	}
	if err := t.answered("reserve", d.Stamp, err); err != nil {
		return nil, err
	}
	answers := make([]Answer, len(d.Answers))
	for i, o := range orders[:len(answers)] {
		answers[i].Reservation, answers[i].Err = t.decision(o, d.Stamp, &d.Answers[i])
		answers[i].advance = broughtAdvance{d.Answers[i].Advance, wire.Instant(d.Answers[i].AdvanceEnds)}
	}
	return answers, nil
}

// isUndone reports whether a repeated call, without jobs, found that the lost call was never
// carried out.
func isUndone(reply any) bool {
	d, err := wire.ReadDecisions(reply)
	return err == nil && len(d.Answers) == 0
}

// decision is the answer for one job.
func (t *setup) decision(o *order, at wire.Stamp, d *wire.Decision) (Reservation, error) {
	var trouble wire.UndecidedError
	if errors.As(d.Err, &trouble) {
		t.heedMissing(context.Background(), string(trouble))
		return Reservation{}, t.redis.classify(context.Background(), time.Now(), trouble)
	}
	hold, isHold := t.hold(o, d.Held)
	shadow, isShadow := t.hold(o, d.Shadow)
	uncharged, isUncharged := o.uncharged(d.Uncharged)
	if d.Err != nil || !isHold || !isShadow || !isUncharged {
		return Reservation{}, badReply("reserve")
	}
	start := wire.Instant(d.Start)
	r := Reservation{Job: o.job, Outcome: Outcome(d.Outcome), Now: wire.Instant(at.Now), Next: wire.Instant(at.Next),
		Lane: o.lane, Start: start, Hold: hold, Uncharged: uncharged, Lease: duration(d.Lease),
		Waited: duration(d.Waited)}
	switch d.Outcome {
	case line.Granted:
		if shadow != nil {
			r.Shadow = shadow.until(wire.Instant(d.Until))
			t.logged.shadow(t.name, r)
		}
	case line.Booked:
		hold.until(start)
	case line.Waiting:
		r.Ahead = d.Ahead
		t.estimate(&r, o, d.Flows)
	case line.TooLate:
		return Reservation{},
			&DeadlineError{Job: o.job.ID, Deadline: o.job.Deadline, Start: start, Hold: hold.until(start)}
	case line.LineFull:
		r.Ahead = d.Ahead
		return Reservation{}, t.full(r, o, d)
	case line.NeverFits:
		return Reservation{}, o.neverFits(hold, d.Held.Origin)
	}
	return r, nil
}

// uncharged returns the scopes of the scope keys; false if one of these is not the job's.
func (o *order) uncharged(names []string) (scopes []string, known bool) {
	for _, name := range names {
		c := o.charged(name)
		if c == nil {
			return nil, false
		}
		scopes = append(scopes, c.scope.Name)
	}
	return scopes, true
}

// hold converts what keeps a job back; false if its scope key is not one of the job's.
func (t *setup) hold(o *order, held *line.Held) (h *Hold, known bool) {
	if held == nil {
		return nil, true
	}
	c := o.charged(held.Key)
	if c == nil {
		return nil, false
	}
	h = &Hold{Scope: c.scope.Name, Key: c.key, Used: held.Used, Booked: held.Booked, Paused: held.Limit == nil}
	if held.Limit != nil {
		h.Limit = t.limitAs(h.Scope, *held.Limit)
	}
	return h, true
}

// until sets the hold's end and returns the hold; nil stays nil.
func (h *Hold) until(end time.Time) *Hold {
	if h != nil {
		h.Until = end
	}
	return h
}

// full returns the error for a job for which a line is full.
func (t *setup) full(r Reservation, o *order, d *wire.Decision) error {
	c := o.charged(d.Full.Key)
	if c == nil {
		return badReply("reserve")
	}
	t.estimate(&r, o, d.Flows)
	return &LineFullError{Job: o.job.ID, Scope: c.scope.Name, Key: c.key, Waiting: Length(d.Full.Length),
		MaxWaiting: c.scope.MaxWaiting, Wait: r.Delay()}
}

// neverFits returns the error for a job that weighs more than a limit, which is configured or was set.
func (o *order) neverFits(hold *Hold, origin byte) error {
	units := o.units(hold.Scope)
	switch origin {
	case wire.Configured:
		return &NeverFitsError{Job: o.job.ID, Weight: units, Scope: hold.Scope, Key: hold.Key, Limit: hold.Limit}
	case wire.SetForScope, wire.SetForKey:
		return &BlockedError{Job: o.job.ID, Weight: units, Scope: hold.Scope, Key: hold.Key, Limit: hold.Limit}
	}
	return badReply("reserve")
}

// limitAs returns a counted limit as a person would enter it: without a Precision or a Lease that is
// the default, or that SetLimits would take from the configured limit.
func (t *setup) limitAs(scope string, counted line.Limit) Limit {
	of := t.scopeOf(scope)
	limit := limitOf(counted, of.Margin)
	for _, own := range of.Limits {
		if of.counted(own) == of.counted(limit) {
			return own
		}
	}
	for _, own := range of.Limits {
		if own.Label() == limit.Label() {
			return limit.entered(own)
		}
	}
	return limit.plain()
}

// pulled reads the answer of a pull; jobs is the number of ended jobs that were passed with it.
func (t *setup) pulled(ctx context.Context, reply any, jobs int) (Pulled, error) {
	told, err := wire.ReadPulled(reply, jobs)
	p := Pulled{Now: wire.Instant(told.Now), Next: wire.Instant(told.Next), Held: told.Held, Full: told.EndedAt > 0}
	for _, one := range told.Booked {
		r, is := t.booking(p.Now, one)
		p.Booked, err = append(p.Booked, r), cmp.Or(err, unless(is))
	}
	for _, one := range told.Overdue {
		r, is := t.booking(p.Now, one)
		p.Overdue, err = append(p.Overdue, r), cmp.Or(err, unless(is))
	}
	if err := t.answered("pull", told.Stamp, err); err != nil {
		return Pulled{}, err
	}
	if told.Trouble != "" && !t.heedMissing(ctx, told.Trouble) {
		t.logged.trouble(t.name, told.Trouble)
	}
	return p, nil
}

// unless returns wire.ErrUnreadable unless is is true.
func unless(is bool) error {
	if is {
		return nil
	}
	return wire.ErrUnreadable
}

// booking converts a job of a pull's answer; false if its lane cannot be read.
func (t *setup) booking(now time.Time, told line.Told) (r Reservation, is bool) {
	r = Reservation{Outcome: Booked, Now: now, Start: wire.Instant(told.Slot), Lane: told.Lane}
	r.Job.ID = told.ID
	_, r.Job.Priority, _, _ = wire.LaneParts(told.Lane)
	r.Job.Keys, is = wire.LaneKeys(told.Lane, t.fair)
	return r, is
}
