package throttle

import (
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

// call is what the scripts are told of one job: its keys and its limits.
type call struct {
	met     []meets
	job     Job      // that has to fit; its weight is 0 if it need not
	keys    []string // the record, the control key and the line's, then each scope key with its ledgers
	names   string   // of the scope keys
	belief  string   // what is taken to be set for them
	limits  []string // describes the scope keys and ledgers: the number of limits, or the limit
	holds   []Hold   // scope, key and limit of each ledger, in order
	free    []bool   // the ledger holds nobody back
	ledgers string   // names the scope keys and the ledgers
	lane    Lane
	held    []string // keys of the lanes that the scope keys hold which others share
}

// lineKeys is how many of a call's keys stand before the scope keys.
const lineKeys = 8

// mostHeld is for how many of its scope keys a job can wait with others.
const mostHeld = 26

// keysFrom are the keys from the line's on, with those of the held lanes before the
// scope keys.
func (c *call) keysFrom(first int) []string {
	if len(c.held) == 0 {
		return c.keys[first:]
	}
	return slices.Concat(c.keys[first:lineKeys], c.held, c.keys[lineKeys:])
}

// args puts the limits after the arguments of the script's own.
func (c *call) args(own ...any) []any {
	args := make([]any, 0, len(own)+len(c.limits))
	args = append(args, own...)
	for _, text := range c.limits {
		args = append(args, text)
	}
	return args
}

// newCall checks a job and lists its keys.
func (t *Throttle) newCall(ctx context.Context, job Job) (*call, error) {
	c, err := t.callFor(ctx, job)
	if err != nil {
		return nil, err
	}
	c.job = job
	if err = c.fits(); err != nil {
		// Limits may have been set since this process heard of them.
		if wrong := t.confirm(ctx, c); wrong != nil {
			return nil, wrong
		}
		err = c.fits()
	}
	return c, err
}

// callFor lists the keys of a job that need not fit.
func (t *Throttle) callFor(ctx context.Context, job Job) (*call, error) {
	if ctx == nil {
		return nil, &InvalidJobError{Job: job.ID, Field: "ctx", Value: nil, Reason: "is nil"}
	}
	met, err := t.meetings(job)
	if err != nil {
		return nil, err
	}
	return t.callOf(job.ID, met)
}

// callOf lists the keys of a job that meets these scope keys.
func (t *Throttle) callOf(id string, met []meets) (*call, error) {
	c := &call{
		met: met, keys: make([]string, lineKeys, 2*lineKeys), limits: make([]string, 0, 8),
		holds: make([]Hold, 0, 4), free: make([]bool, 0, 4),
	}
	c.lane = t.laneOf(met)
	c.keys[0], c.keys[1] = t.keys.record(id), t.keys.control
	line := t.keys.line(c.lane)
	copy(c.keys[2:], line[:])
	for i := range met {
		if t.class(met[i].scope.Name) == classOther && len(c.held) < mostHeld {
			c.held = append(c.held, t.keys.held(met[i].name()))
		}
	}
	return c, t.rules(c)
}

// rules lists what is in force for the scope keys of a call, by what this process
// believes.
func (t *Throttle) rules(c *call) error {
	c.keys, c.limits, c.holds, c.free = c.keys[:min(len(c.keys), lineKeys)], c.limits[:0], c.holds[:0], c.free[:0]
	names, beliefs, believes := make([]string, len(c.met)), make([]string, len(c.met)), false
	for i := range c.met {
		m := &c.met[i]
		name := m.name()
		m.belief, m.rulings = t.controls.believed(m.scope.Name, name), nil
		if err := t.rule(m); err != nil {
			return err
		}
		beliefs[i], believes = m.belief, believes || m.belief != ""
		names[i] = "+" + name
		if m.mode != Enforce {
			names[i] = "-" + name
		}
		c.add(t.keys, m)
	}
	c.names, c.belief = strings.Join(names, " "), ""
	if believes {
		c.belief = strings.Join(beliefs, " ")
	}
	c.ledgers = nameLedgers(c)
	return nil
}

// nameLedgers names what a booking and a charge of this call are entered in, since
// the same job may come back after its keys or windows have changed: the scope keys,
// a point, and their windows.
func nameLedgers(c *call) string {
	scopes, windows := fnv.New64a(), fnv.New64a()
	for i := range c.met {
		m := &c.met[i]
		if len(m.rulings) == 0 {
			continue
		}
		scopes.Write([]byte(m.name()))
		scopes.Write([]byte{0})
		for _, r := range m.rulings {
			windows.Write([]byte(micros(r.limit.Window)))
			windows.Write([]byte{' '})
		}
		windows.Write([]byte{0})
	}
	return strconv.FormatUint(scopes.Sum64(), 36) + "." + strconv.FormatUint(windows.Sum64(), 36)
}

// scopeKeys is the first half of a call's ledgers.
func (c *call) scopeKeys() string {
	scopes, _, _ := strings.Cut(c.ledgers, ".")
	return scopes
}

// add lists one scope key with its ledgers.
func (c *call) add(keys keys, m *meets) {
	if len(m.rulings) == 0 {
		return
	}
	c.keys = append(c.keys, keys.scope(m.scope.Name, m.encoded))
	c.limits = append(c.limits, strconv.Itoa(len(m.rulings)))
	for _, r := range m.rulings {
		c.keys = append(c.keys, keys.ledger(m.scope.Name, m.encoded, r.limit.Window))
		c.limits = append(c.limits, r.text())
		c.holds = append(c.holds, Hold{Scope: m.scope.Name, Key: m.key, Limit: r.limit})
		c.free = append(c.free, r.free())
	}
}

// text describes a ledger to the scripts.
func (r ruling) text() string {
	text := integers(r.limit.Units, r.limit.Window.Microseconds(), r.limit.precision().Microseconds())
	if r.how != "" {
		text += " " + r.how
	}
	return text
}

// enforced are the limits that hold jobs back.
func (c *call) enforced() []Hold {
	holds := make([]Hold, 0, len(c.holds))
	for i, hold := range c.holds {
		if !c.free[i] {
			holds = append(holds, hold)
		}
	}
	return holds
}

// hold is what a script names as holding a job back: a limit, or behind them a scope
// key that is paused. What held a booked job may be there no more.
func (c *call) hold(holder int64) *Hold {
	switch n := holder - int64(len(c.holds)); {
	case holder <= 0 || n > int64(len(c.met)):
		return nil
	case n <= 0:
		hold := c.holds[holder-1]
		return &hold
	default:
		return &Hold{Scope: c.met[n-1].scope.Name, Key: c.met[n-1].key, Paused: true}
	}
}

// cannotStart is the outcome of a job with a deadline before its start.
const cannotStart Outcome = 4

// reservation reads the reply of reserve.lua and peek.lua.
func (t *Throttle) reservation(script string, c *call, job Job, reply reply) (Reservation, error) {
	waiting := reply.is("iiiiiiitiiiii") && len(reply) == 13+2*len(c.holds) && Outcome(reply.integer(0)) == Waiting
	if !reply.is("iiiiiiitii") || len(reply) > 10 && !waiting {
		return Reservation{}, badReply(script, reply)
	}
	r := Reservation{
		Job:      job,
		Outcome:  Outcome(reply.integer(0)),
		Now:      time.UnixMicro(reply.integer(1)),
		Start:    time.UnixMicro(reply.integer(2)),
		Replayed: reply.integer(6) == 1,
		Next:     Lane(reply.text(7)),
	}
	if r.Hold = c.hold(reply.integer(3)); r.Hold != nil {
		r.Hold.Used, r.Hold.Booked, r.Hold.Until = reply.integer(4), reply.integer(5), r.Start
	}
	if r.Shadow = c.hold(reply.integer(8)); r.Shadow != nil {
		r.Shadow.Until = time.UnixMicro(reply.integer(9))
		t.logged.shadow(t.name, r)
	}
	r.Ledgers = c.ledgers
	switch r.Outcome {
	case Granted, Booked:
		return r, nil
	case Waiting:
		t.estimate(c, reply, &r)
		return r, nil
	case cannotStart:
		return Reservation{}, &DeadlineError{Job: job.ID, Deadline: job.Deadline, Start: r.Start, Hold: r.Hold}
	}
	return Reservation{}, badReply(script, reply)
}

// integers writes numbers as the scripts read them, separated by blanks.
func integers(numbers ...int64) string {
	text := make([]byte, 0, 48)
	for i, n := range numbers {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text)
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
