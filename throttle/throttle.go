package throttle

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Throttle decides for the jobs of one named set of scopes. Most callers want:
//
//   - Reserve, when they can put a job aside until its slot, as a queue can;
//     for asynq the package worker does it;
//   - Wait, when they would block until the job may start;
//   - Peek and Usage, to look without taking.
//
// A Throttle is safe for use by many goroutines. It starts none that outlives
// a call by more than the client's own timeouts, and needs no closing.
type Throttle struct {
	name    string
	keys    keys
	scopes  []Scope
	keyed   map[string]struct{} // the names of scopes that jobs give a key for
	options Options
	redis   *caller
	local   *localShare      // nil unless FallbackLocal
	logged  *rateLimitedLog  // fallbacks
	now     func() time.Time // nil in production: Redis' own clock
}

// New returns the throttle called name: 1 to 64 of A-Z a-z 0-9 _ . -, and part
// of every key it uses in Redis. All processes that use the same name and Redis
// share its limits and should give the same scopes. New does not talk to Redis.
// The error is an *OptionError or wraps a *LimitError.
func New(name string, client redis.Scripter, scopes []Scope, opts *Options) (*Throttle, error) {
	if !validName(name) {
		return nil, &OptionError{Field: "name", Value: name, Reason: "want 1 to 64 of A-Z a-z 0-9 _ . -"}
	}
	if isNil(client) {
		return nil, &OptionError{Field: "client", Value: nil, Reason: "is nil"}
	}
	options, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := validateScopes(scopes); err != nil {
		return nil, err
	}
	t := &Throttle{
		name:    name,
		keys:    newKeys(name),
		scopes:  copyScopes(scopes),
		keyed:   make(map[string]struct{}),
		options: options,
		redis:   newCaller(client, options),
		logged:  newRateLimitedLog(options.Logger),
	}
	for _, scope := range scopes {
		if scope.Name != Global {
			t.keyed[scope.Name] = struct{}{}
		}
	}
	if options.Fallback == FallbackLocal {
		t.local = newLocalShare(options.LocalShare)
	}
	return t, nil
}

// Name returns the throttle's name.
func (t *Throttle) Name() string { return t.name }

// Reserve decides for a job: granted, if all its limits have room within
// MaxWait, or booked, with the slot at which to ask again. A job that is asked
// for again is found by its ID: before its slot the answer is the same slot, at
// its slot it is granted if what really started leaves room, else booked anew.
//
// Reserve blocks for one round trip to Redis, at most Options.Timeout. Its
// errors: *InvalidJobError and *NeverFitsError before anything is written,
// *DeadlineError, *UnavailableError (see Options.Fallback), the context's error,
// ErrState.
func (t *Throttle) Reserve(ctx context.Context, job Job) (Reservation, error) {
	call, err := t.newCall(ctx, job)
	if err != nil {
		return Reservation{}, err
	}
	if job.Nonce == "" {
		job.Nonce = rand.Text()
	}
	latest := ""
	if !job.Deadline.IsZero() {
		latest = micros(max(0, t.until(job.Deadline)))
	}
	reply, err := t.redis.run(ctx, reserveScript, call.keys, call.args(t.nowArgument(), job.Nonce, call.ledgers,
		integers(job.Weight, job.MaxWait.Microseconds(), t.options.Grace.Microseconds())+" "+latest))
	if err != nil {
		return t.fallBack(ctx, job, call, err)
	}
	return call.reservation(job, reply)
}

// Peek says what Reserve would answer if the job came now for the first time,
// and changes nothing. It blocks and fails as Reserve does, without fallback.
func (t *Throttle) Peek(ctx context.Context, job Job) (Reservation, error) {
	call, err := t.newCall(ctx, job)
	if err != nil {
		return Reservation{}, err
	}
	reply, err := t.redis.run(ctx, peekScript, call.keys[1:], call.args(
		t.nowArgument(), strconv.FormatInt(job.Weight, 10), micros(t.options.Grace)))
	if err != nil {
		return Reservation{}, withJob(err, job)
	}
	if len(reply) != 5 {
		return Reservation{}, badReply("peek", reply)
	}
	outcome := int64(Granted)
	if reply[1] > reply[0]+job.MaxWait.Microseconds() {
		outcome = int64(Booked)
	}
	return call.reservation(job, []int64{outcome, reply[0], reply[1], reply[2], reply[3], reply[4], 0})
}

// Cancel gives the job's reservation back: a booking, or a grant whose start is
// still ahead if job.Nonce is that grant's. What it held is free at once. It
// returns false if there was nothing to give back. Blocks and fails as Reserve
// does, without fallback.
func (t *Throttle) Cancel(ctx context.Context, job Job) (bool, error) {
	return t.giveBack(ctx, job, "0")
}

// Release turns a grant whose start is still ahead back into a booking of the
// same start, for a caller that has to stop before it: asked for again, the job
// finds its place. The job is Reservation.Job, with its nonce. It returns false
// if the start is past or the grant is not known; the charge then stays. Blocks
// and fails as Reserve does, without fallback.
func (t *Throttle) Release(ctx context.Context, job Job) (bool, error) {
	return t.giveBack(ctx, job, "1")
}

func (t *Throttle) giveBack(ctx context.Context, job Job, keep string) (bool, error) {
	call, err := t.newCall(ctx, job)
	if err != nil {
		return false, err
	}
	reply, err := t.redis.run(ctx, cancelScript, call.keys, call.args(
		t.nowArgument(), job.Nonce, keep, micros(t.options.Grace), call.ledgers))
	if err != nil {
		return false, withJob(err, job)
	}
	if len(reply) != 3 {
		return false, badReply("cancel", reply)
	}
	return reply[0] == 1, nil
}

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

// fallBack answers for a job that Redis could not decide on. A caller who gave up
// gets no fallback.
func (t *Throttle) fallBack(ctx context.Context, job Job, c *call, err error) (Reservation, error) {
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) {
		return Reservation{}, err
	}
	err = withJob(err, job)
	if ctx.Err() != nil {
		return Reservation{}, err
	}
	t.logged.fallback(t.name, unavailable)
	now := time.Now()
	granted := Reservation{Job: job, Outcome: Granted, Start: now, Now: now}
	switch {
	case t.options.Fallback == FallbackOpen:
		granted.Source = FromOpen
		return granted, nil
	case t.options.Fallback == FallbackLocal && t.local.take(c, job.Weight, now):
		granted.Source = FromLocal
		return granted, nil
	}
	return Reservation{}, err
}

// nowArgument is empty in production: the script then reads Redis' clock.
func (t *Throttle) nowArgument() string {
	if t.now == nil {
		return ""
	}
	return strconv.FormatInt(t.now().UnixMicro(), 10)
}

// until is how far off a deadline is by the local clock, the only one that the
// caller can have meant it by.
func (t *Throttle) until(deadline time.Time) time.Duration {
	if t.now == nil {
		return time.Until(deadline)
	}
	return deadline.Sub(t.now())
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

func withJob(err error, job Job) error {
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) {
		unavailable.Job, unavailable.Nonce = job.ID, job.Nonce
	}
	return err
}

func badReply(script string, reply []int64) error {
	return fmt.Errorf("throttle: script %s answered %v: %w", script, reply, ErrState)
}

func copyScopes(scopes []Scope) []Scope {
	copied := make([]Scope, len(scopes))
	for i, scope := range scopes {
		copied[i] = scope
		copied[i].Limits = append([]Limit(nil), scope.Limits...)
	}
	return copied
}
