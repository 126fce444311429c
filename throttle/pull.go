package throttle

import (
	"context"
	"errors"
	"time"
)

// What one call to Redis does at most.
const (
	mostPulled = 32  // jobs
	mostSwept  = 100 // lanes and bookings
)

// forgetAfter is how long after its slot a job that did not come finds the place
// in its lane again.
const forgetAfter = 10 * time.Minute

// Pull books jobs of a lane, in their order, as far as it is their turn and they
// have a place within Options.Lookahead, and returns them with their slots: each
// is to be asked for by Reserve then. The lane is one that a Reservation, Pull or
// Sweep named as the next; the lane that Pull returns is to be pulled now. Without
// Pull nobody in line is ever booked: the package worker and Wait call it. A lane
// whose turn it is not changes nothing. One that this process cannot pull, since it
// has other scopes or a key holds foreign data, is left alone for a second, so that
// it does not hold up the others.
//
// The jobs have an ID, a Weight and a Lane. One whose answer was lost is found by
// Sweep when its slot has passed. It blocks for one round trip and fails as
// Reserve does, without fallback.
func (t *Throttle) Pull(ctx context.Context, lane Lane) (booked []Reservation, next Lane, err error) {
	booked, next, _, err = t.pullOrSkip(ctx, lane, mostPulled, 0)
	return booked, next, err
}

// pullOrSkip pulls a lane, or leaves it alone for a second.
func (t *Throttle) pullOrSkip(ctx context.Context, lane Lane, most, recall int64) (booked []Reservation, next Lane, skipped bool, err error) {
	booked, next, err = t.pull(ctx, lane, most, recall)
	var unknown *InvalidJobError
	if ctx == nil || !errors.As(err, &unknown) && !errors.Is(err, ErrState) {
		return booked, next, false, err
	}
	line := t.keys.line(lane)
	reply, skipErr := t.redis.run(ctx, skipScript, line[:5], []any{t.nowArgument(), string(lane), t.kept.Milliseconds()})
	switch {
	case skipErr != nil:
		return nil, "", true, errors.Join(err, skipErr)
	case !reply.is("it"):
		return nil, "", true, badReply("skip", reply)
	}
	t.logged.skipped(t.name, lane, err)
	return nil, Lane(reply.text(1)), true, nil
}

// pull pulls up to most jobs. recall says that a lane's time has come.
func (t *Throttle) pull(ctx context.Context, lane Lane, most, recall int64) (booked []Reservation, next Lane, err error) {
	if ctx == nil {
		return nil, "", &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	met, err := t.meetingsOf(lane)
	if err != nil {
		return nil, "", err
	}
	c, err := t.callOf("", met)
	if err != nil {
		return nil, "", err
	}
	reach := integers(t.options.Grace.Microseconds(), t.options.Lookahead.Microseconds(), t.kept.Milliseconds(),
		t.shares.of(c.lane.fairKey()), most, recall, int64(len(c.held)))
	reply, err := t.ask(ctx, pullScript, c, func() ([]string, []any) {
		return c.keysFrom(1), c.args(t.nowArgument(), c.names, c.belief, string(c.lane), c.scopeKeys(), reach, t.classes(c))
	})
	if err != nil {
		return nil, "", err
	}
	if !reply.is("it") {
		return nil, "", badReply("pull", reply)
	}
	now := time.UnixMicro(reply.integer(0))
	for rest := reply[2:]; len(rest) > 0; rest = rest[3:] {
		if !rest.is("tii") {
			return nil, "", badReply("pull", reply)
		}
		booked = append(booked, Reservation{
			Job: Job{ID: rest.text(0), Weight: rest.integer(1), Lane: c.lane}, Outcome: Booked,
			Now: now, Start: time.UnixMicro(rest.integer(2)),
		})
	}
	return booked, Lane(reply.text(1)), nil
}

// classes are those of a call's limits and, behind them, of its scope keys, as pull.lua
// knows them: for scope keys that others share, A is the first of the held, B the second.
func (t *Throttle) classes(c *call) string {
	of, next := make(map[string]byte, len(c.met)), byte('A')
	for i := range c.met {
		scope := c.met[i].scope.Name
		class := t.class(scope)
		if class == classOther {
			class, next = next, min(next+1, 'A'+mostHeld-1)
		}
		of[scope] = class
	}
	classes := make([]byte, 0, len(c.holds)+len(c.met))
	for _, hold := range c.holds {
		classes = append(classes, of[hold.Scope])
	}
	for i := range c.met {
		classes = append(classes, of[c.met[i].scope.Name])
	}
	return string(classes)
}

// letIn makes the first of the lanes eligible that a scope key holds.
func (t *Throttle) letIn(ctx context.Context, holder string, swept *Swept) error {
	lane, err := t.admit(ctx, holder, "")
	if err != nil || lane == "" {
		return err
	}
	_, next, skipped, err := t.pullOrSkip(ctx, lane, 0, 1)
	if err != nil {
		return err
	}
	swept.Next = next
	if skipped {
		_, err = t.admit(ctx, holder, lane)
	}
	return err
}

// admit names the first of the lanes that a scope key holds, empty if there is none;
// before that it lets one go.
func (t *Throttle) admit(ctx context.Context, holder string, without Lane) (Lane, error) {
	reply, err := t.redis.run(ctx, admitScript, []string{t.keys.shared[1], t.keys.shared[3], t.keys.held(holder)}, []any{t.nowArgument(), string(without)})
	switch {
	case err != nil:
		return "", err
	case !reply.is("it"):
		return "", badReply("admit", reply)
	}
	return Lane(reply.text(1)), nil
}

// Swept is what Sweep found.
type Swept struct {
	// Overdue are booked jobs that did not come to their slot: whoever was to
	// bring them may have died. Each is told again later until it comes, is
	// cancelled, or is told for the last time, ten minutes or more after its slot.
	Overdue []Reservation
	// Next is a lane to be pulled now; empty if none.
	Next Lane
	// More is true if there is more to be found at once.
	More bool
}

// Sweep finds what nobody's start pulls along: lanes whose time has come, which it
// makes eligible again, the first of those that wait for a scope key which has room, and
// bookings overdue. Call it a few times a second in each
// process that brings jobs; what one has found the others leave alone for a
// second. It blocks for one round trip, and two more for each lane it finds, and
// fails as Reserve does, without fallback; what was found before is told all the
// same.
func (t *Throttle) Sweep(ctx context.Context) (Swept, error) { return t.sweep(ctx, 1) }

// sweep finds bookings overdue too if jobs is 1.
func (t *Throttle) sweep(ctx context.Context, jobs int64) (Swept, error) {
	if ctx == nil {
		return Swept{}, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	most := int64(mostSwept)
	if jobs == 0 {
		most = 1000 // past the bookings, which it leaves where they are
	}
	reply, err := t.redis.run(ctx, sweepScript, append(t.keys.shared[:3:3], t.keys.control), []any{t.nowArgument(), most, micros(forgetAfter), jobs})
	if err != nil {
		return Swept{}, err
	}
	if !reply.is("iti") {
		return Swept{}, badReply("sweep", reply)
	}
	swept := Swept{Next: Lane(reply.text(1)), More: reply.integer(2) >= most}
	now := time.UnixMicro(reply.integer(0))
	var lanes []Lane
	var holders []string // scope keys that hold lanes
	for rest := reply[3:]; len(rest) > 0; {
		switch {
		case rest.is("tt") && rest.text(0) == "key":
			holders = append(holders, rest.text(1))
			rest = rest[2:]
		case rest.is("tt") && rest.text(0) == "lane":
			lanes = append(lanes, Lane(rest.text(1)))
			rest = rest[2:]
		case rest.is("ttiit"):
			job := Job{ID: rest.text(1), Weight: rest.integer(2), Lane: Lane(rest.text(4))}
			swept.Overdue = append(swept.Overdue, Reservation{Job: job, Outcome: Booked, Now: now, Start: time.UnixMicro(rest.integer(3))})
			rest = rest[5:]
		default:
			return swept, badReply("sweep", reply)
		}
	}
	for _, lane := range lanes {
		if _, swept.Next, _, err = t.pullOrSkip(ctx, lane, 0, 1); err != nil {
			return swept, err
		}
	}
	for _, holder := range holders {
		if err := t.letIn(ctx, holder, &swept); err != nil {
			return swept, err
		}
	}
	return swept, nil
}
