package throttle

import (
	"context"
	"hash/fnv"
	"strconv"
	"time"
)

// call is what the scripts are told of one job: its keys and its limits.
type call struct {
	keys    []string // the record and the line's, then each scope key with its ledgers
	limits  []string // describes the scope keys and ledgers: the number of limits, or the limit
	holds   []Hold   // scope, key and limit of each ledger, in order
	ledgers string   // names the ledgers
	lane    Lane
}

// lineKeys is how many of a call's keys stand before the scope keys.
const lineKeys = 7

// args puts the limits after the arguments of the script's own.
func (c *call) args(own ...any) []any {
	args := make([]any, 0, len(own)+len(c.limits))
	args = append(args, own...)
	for _, text := range c.limits {
		args = append(args, text)
	}
	return args
}

// newCall checks a job and lists its keys. The limits that cannot hold a job
// back (Unlimited) are left out.
func (t *Throttle) newCall(ctx context.Context, job Job) (*call, error) {
	if ctx == nil {
		return nil, &InvalidJobError{Job: job.ID, Field: "ctx", Value: nil, Reason: "is nil"}
	}
	met, err := t.meetings(job)
	if err != nil {
		return nil, err
	}
	if err := fits(job, met); err != nil {
		return nil, err
	}
	return t.callOf(job.ID, met), nil
}

// callOf lists the keys of a job that meets these scope keys.
func (t *Throttle) callOf(id string, met []meets) *call {
	c := &call{keys: make([]string, lineKeys, 2*lineKeys), limits: make([]string, 0, 8), holds: make([]Hold, 0, 4)}
	c.lane = t.laneOf(met)
	c.keys[0] = t.keys.record(id)
	line := t.keys.line(c.lane)
	copy(c.keys[1:], line[:])
	for _, m := range met {
		c.add(t.keys, m)
	}
	c.ledgers = nameLedgers(c)
	return c
}

// nameLedgers names what a booking of this call is entered in: the same job may
// come back after its keys, or a window or precision, have changed. A change of
// units keeps its bookings.
func nameLedgers(c *call) string {
	hash := fnv.New64a()
	for _, key := range c.keys[lineKeys:] {
		hash.Write([]byte(key))
		hash.Write([]byte{0})
	}
	for _, hold := range c.holds {
		hash.Write([]byte(micros(hold.Limit.precision())))
		hash.Write([]byte{0})
	}
	return strconv.FormatUint(hash.Sum64(), 36)
}

// add lists one scope key with its limits.
func (c *call) add(keys keys, met meets) {
	scope, encoded := met.scope, met.encoded
	count := 0
	for _, limit := range scope.Limits {
		if limit.Units != Unlimited {
			count++
		}
	}
	if count == 0 {
		return
	}
	c.keys = append(c.keys, keys.scope(scope.Name, encoded))
	c.limits = append(c.limits, strconv.Itoa(count))
	for _, limit := range scope.Limits {
		if limit.Units == Unlimited {
			continue
		}
		c.keys = append(c.keys, keys.ledger(scope.Name, encoded, limit.Window))
		c.limits = append(c.limits, integers(limit.Units, limit.Window.Microseconds(), limit.precision().Microseconds()))
		c.holds = append(c.holds, Hold{Scope: scope.Name, Key: met.key, Limit: limit})
	}
}

// cannotStart is the outcome of a job with a deadline before its start.
const cannotStart Outcome = 4

// reservation reads the reply of reserve.lua and peek.lua.
func (t *Throttle) reservation(script string, c *call, job Job, reply reply) (Reservation, error) {
	waiting := reply.is("iiiiiiitiii") && len(reply) == 11+2*len(c.holds) && Outcome(reply.integer(0)) == Waiting
	if !reply.is("iiiiiiit") || len(reply) > 8 && !waiting || reply.integer(3) < 0 || reply.integer(3) > int64(len(c.holds)) {
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
	if holder := reply.integer(3); holder > 0 {
		hold := c.holds[holder-1]
		hold.Used, hold.Booked, hold.Until = reply.integer(4), reply.integer(5), r.Start
		r.Hold = &hold
	}
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
