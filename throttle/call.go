package throttle

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"
)

// call is what the scripts are told of one job: its keys and its limits.
type call struct {
	keys    []string // the record, then each scope key with its ledgers
	limits  []string // describes each of keys[1:]: the number of limits, or the limit
	holds   []Hold   // scope, key and limit of each ledger, in order
	ledgers string   // names the ledgers
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
	c := &call{keys: make([]string, 1, 8), limits: make([]string, 0, 8), holds: make([]Hold, 0, 4)}
	c.keys[0] = t.keys.record(job.ID)
	for _, m := range met {
		c.add(t.keys, m.scope, m.key)
	}
	c.ledgers = nameLedgers(c)
	return c, nil
}

// nameLedgers names what a booking of this call is entered in: the same job may
// come back after its keys, or a window or precision, have changed. A change of
// units keeps its bookings.
func nameLedgers(c *call) string {
	hash := fnv.New64a()
	for _, key := range c.keys[1:] {
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
func (c *call) add(keys keys, scope *Scope, key string) {
	count := 0
	for _, limit := range scope.Limits {
		if limit.Units != Unlimited {
			count++
		}
	}
	if count == 0 {
		return
	}
	encoded := encode(key)
	c.keys = append(c.keys, keys.scope(scope.Name, encoded))
	c.limits = append(c.limits, strconv.Itoa(count))
	for _, limit := range scope.Limits {
		if limit.Units == Unlimited {
			continue
		}
		c.keys = append(c.keys, keys.ledger(scope.Name, encoded, limit.Window))
		c.limits = append(c.limits, integers(limit.Units, limit.Window.Microseconds(), limit.precision().Microseconds()))
		c.holds = append(c.holds, Hold{Scope: scope.Name, Key: key, Limit: limit})
	}
}

// cannotStart is the outcome of a job with a deadline before its start.
const cannotStart Outcome = 3

// reservation reads the reply of reserve.lua.
func (c *call) reservation(job Job, reply []int64) (Reservation, error) {
	if len(reply) != 7 || reply[0] < 1 || reply[0] > 3 || reply[3] < 0 || reply[3] > int64(len(c.holds)) {
		return Reservation{}, badReply("reserve", reply)
	}
	r := Reservation{
		Job:      job,
		Outcome:  Outcome(reply[0]),
		Now:      time.UnixMicro(reply[1]),
		Start:    time.UnixMicro(reply[2]),
		Replayed: reply[6] == 1,
	}
	if holder := reply[3]; holder > 0 {
		hold := c.holds[holder-1]
		hold.Used, hold.Booked, hold.Until = reply[4], reply[5], r.Start
		r.Hold = &hold
	}
	if r.Outcome == cannotStart {
		return Reservation{}, &DeadlineError{Job: job.ID, Deadline: job.Deadline, Start: r.Start, Hold: r.Hold}
	}
	return r, nil
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

func badReply(script string, reply []int64) error {
	return fmt.Errorf("throttle: script %s answered %v: %w", script, reply, ErrState)
}
