package throttle

import (
	"context"
	"errors"
	"strings"
	"time"
)

// decisions reads the answer of reserve: an Answer for each order, or for the first ones, since a
// call ends that takes long. The others were not looked at.
func (t *setup) decisions(reply any, orders []*order) ([]Answer, error) {
	text, isText := reply.(string)
	lines := strings.Split(text, "\n")
	head := lineOf("reserve", lines[0])
	at := head.stamp()
	if err := head.end(); err != nil || !isText || len(lines) > 1+len(orders) || len(lines) < 1+min(1, len(orders)) {
		return nil, badReply("reserve")
	}
	t.line.heard(at)
	answers := make([]Answer, len(lines)-1)
	for i, o := range orders[:len(answers)] {
		answers[i].Reservation, answers[i].Err = t.decision(o, at, lineOf("reserve", lines[1+i]))
	}
	return answers, nil
}

// isUndone tells that reserve was asked for no jobs under a number that is new to it.
func isUndone(reply any) bool {
	text, _ := reply.(string)
	_, jobs, is := strings.Cut(text, "\n")
	return is && jobs == ""
}

// What reserve says of a job, beside the outcomes.
const (
	undecided = 0 // for the error that follows
	tooLate   = 4
	tooHeavy  = 5
)

// decision reads one line of the answer of reserve.
func (t *setup) decision(o *order, at stamp, v *values) (Reservation, error) {
	outcome := v.natural()
	if v.wrong {
		return Reservation{}, badReply("reserve")
	}
	switch outcome {
	case int64(Granted), int64(Booked), int64(Waiting):
		return t.reservation(Outcome(outcome), o, at, v)
	case tooLate:
		start := v.instant()
		hold := t.holdIf(o, v)
		if err := v.end(); err != nil {
			return Reservation{}, err
		}
		return Reservation{}, &DeadlineError{Job: o.job.ID, Deadline: o.job.Deadline, Start: start, Hold: hold.until(start)}
	case tooHeavy:
		return Reservation{}, t.heavy(o, v)
	case undecided:
		return Reservation{}, t.redis.classify(context.Background(), time.Now(), errors.New(strings.Join(v.rest, " ")))
	}
	return Reservation{}, badReply("reserve")
}

// reservation reads what was decided.
func (t *setup) reservation(outcome Outcome, o *order, at stamp, v *values) (Reservation, error) {
	r := Reservation{Job: o.job, Outcome: outcome, Now: at.now, Next: at.next, lane: o.lane, Start: v.instant()}
	switch outcome {
	case Granted:
		r.Lease = v.duration()
		r.Uncharged = o.uncharged(v)
		if v.more() {
			r.Shadow = t.hold(o, v)
			r.Shadow = r.Shadow.until(v.instant())
		}
	case Booked:
		r.Hold = t.holdIf(o, v).until(r.Start)
	case Waiting:
		r.Hold = t.holdIf(o, v)
		r.Ahead = v.natural()
		t.estimate(&r, o, v.natural())
	}
	if err := v.end(); err != nil {
		return Reservation{}, err
	}
	if r.Shadow != nil {
		t.logged.shadow(t.name, r)
	}
	return r, nil
}

// uncharged reads the scopes that were off, if there are any.
func (o *order) uncharged(v *values) (scopes []string) {
	if !v.more() || !strings.HasPrefix(v.rest[0], "!") {
		return nil
	}
	for name := range strings.SplitSeq(v.text()[1:], ",") {
		if c := o.charged(name); c != nil {
			scopes = append(scopes, c.scope.Name)
		} else {
			v.wrong = true
		}
	}
	return scopes
}

// noHolder stands for what waits for nothing but its turn.
const noHolder = "-"

// holdIf reads what holds a job back and how much of it is used and booked, if it
// says so.
func (t *setup) holdIf(o *order, v *values) *Hold {
	if !v.more() {
		return nil
	}
	hold := t.hold(o, v)
	used, booked := v.natural(), v.natural()
	if hold != nil {
		hold.Used, hold.Booked = used, booked
	}
	return hold
}

// hold reads a limit, name/units/window/precision, or a pause, name/p.
func (t *setup) hold(o *order, v *values) *Hold {
	text := v.text()
	if text == noHolder {
		return nil
	}
	name, rest, _ := strings.Cut(text, "/")
	c := o.charged(name)
	if c == nil {
		v.wrong = true
		return nil
	}
	hold := &Hold{Scope: c.scope.Name, Key: c.key}
	if rest == "p" {
		hold.Paused = true
		return hold
	}
	limit := &values{rest: []string{rest}}
	hold.Limit = limit.limit(t, hold.Scope)
	v.wrong = v.wrong || limit.wrong
	return hold
}

// until is the hold with its end.
func (h *Hold) until(end time.Time) *Hold {
	if h != nil {
		h.Until = end
	}
	return h
}

// The places where limits come from.
const (
	configured = "c"
	setAll     = "s" // at run time, for the scope
	setKey     = "k" // at run time, for the key
)

// heavy reads which limit can never hold the job.
func (t *setup) heavy(o *order, v *values) error {
	hold, origin := t.hold(o, v), v.text()
	if err := v.end(); err != nil || hold == nil || hold.Paused {
		return badReply("reserve")
	}
	units := o.units(hold.Scope)
	switch origin {
	case configured:
		return &NeverFitsError{Job: o.job.ID, Weight: units, Scope: hold.Scope, Key: hold.Key, Limit: hold.Limit}
	case setAll, setKey:
		return &BlockedError{Job: o.job.ID, Weight: units, Scope: hold.Scope, Key: hold.Key, Limit: hold.Limit}
	}
	return badReply("reserve")
}
