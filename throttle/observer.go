package throttle

import (
	"errors"
	"time"
)

// Observer receives every event of a throttle, for metrics, traces or a log; the package
// metrics has one for Prometheus. Its methods are called by the goroutine in which the event
// happens, and by many goroutines at once. That goroutine waits for the method, which must not
// block, call the throttle, or change its arguments. A panic is logged and changes nothing else.
type Observer interface {
	// Decided is called with each answer of Reserve and of ReserveAll, and so of Wait.
	Decided(Decision)
	// FellBack is called when Redis could not decide, before Decided. It is not called if the caller's context has ended:
	// then no fallback answers.
	FellBack(Outage)
	// Called is called after each call of a script in Redis; one call of reserve may
	// decide many jobs. It is not called for a call that the breaker refuses.
	Called(ScriptCall)
	// Settled is called when a charge was corrected.
	Settled(Settlement)
	// Paused is called when a scope key was closed.
	Paused(Pause)
	// Adapted is called when the served share of a scope key's limits changes.
	Adapted(Adaptation)
	// Started is called when a granted job begins: by Wait, Driver.Started and the package worker.
	Started(Lateness)
	// PutBack is called when a job goes back to its queue: by the package worker.
	PutBack(PutBack)
	// Ended is called when a job that can never start is ended: by the package worker.
	Ended(Ending)
}

// Decision is one answer of Reserve.
type Decision struct {
	Throttle    string        // its name
	Reservation Reservation   // the answer; beside an error only its Job is set
	Err         error         // of Reserve, nil if it decided
	Took        time.Duration // until the answer, the call to Redis included
	// Advance is how many units the job has charged beside its own, for jobs of its lane that come soon: see
	// Options.Advance. Those jobs' own decisions are Reservation.Advanced.
	Advance int64
}

// Outage says that Redis could not decide for a job, and what decided in its place.
type Outage struct {
	Throttle string // its name
	Failure  string // why, as in UnavailableError
	// Answered is the fallback that granted the job: FallbackOpen or FallbackLocal.
	// FallbackClosed, the zero value, means that the job was not granted; that includes a
	// local share without room.
	Answered Fallback
}

// ScriptCall is one call of a script in Redis.
type ScriptCall struct {
	Throttle string        // its name
	Script   string        // reserve, pull, leave, settle, running, set, report, usage, lines or check
	Took     time.Duration // as seen from here, the network included
	Failure  string        // why Redis could not answer, as in UnavailableError; empty if it did
}

// Settlement says that a charge was corrected to what the job really took.
type Settlement struct {
	Throttle string // its name
	Job      Job    // whose grant it was
	// Charged is what was charged, Actual what is charged now, in units. If the job's costs
	// differ, both are those of the scope key with the largest charge.
	Charged, Actual int64
}

// Pause says that a scope key was closed.
type Pause struct {
	Throttle   string    // its name
	Scope, Key string    // the scope key; Key is empty for Global
	Until      time.Time // when it opens again, on Redis' clock
}

// Lateness says how late a granted job began.
type Lateness struct {
	Throttle    string      // its name
	Reservation Reservation // the grant
	// Late is how long after the granted start the job began, 0 or more. It is measured by the
	// local clock from the arrival of the answer: the time that the answer took to arrive is
	// not included.
	Late time.Duration
}

// PutBack says that a job was not granted and went back to its queue.
type PutBack struct {
	Throttle string // its name
	// Reservation is the job's booking, its Waiting answer, or a grant that a shutdown turned
	// back into a booking; beside an error only its Job is set.
	Reservation Reservation
	// Delay is how long it takes until the queue delivers the job again, unless a process does
	// so before.
	Delay time.Duration
	// Err is why nothing was promised: Redis could not decide, the job weighs more than a
	// limit that was set, or its upstream asked to wait. Else nil.
	Err error
}

// Ending says that a job was ended because it can never start.
type Ending struct {
	Throttle string // its name
	Job      Job    // as it asked
	// Err is why: a *NeverFitsError or a *DeadlineError, or that a task without a retry left
	// cannot start within its Timeout.
	Err error
}

// observeDecision tells the Observer what was decided for one job, and how long that took.
func (t *Throttle) observeDecision(job Job, answer Answer, took time.Duration) {
	r := answer.Reservation
	if answer.Err != nil {
		r = Reservation{Job: job}
	}
	t.options.Observer.Decided(Decision{Throttle: t.name, Reservation: r, Err: answer.Err, Took: took,
		Advance: answer.advance.units})
}

// observeCall tells the Observer of one call of a script, with the error that classify made.
func (c *caller) observeCall(s script, began time.Time, err error) {
	c.options.Observer.Called(ScriptCall{Throttle: c.throttle, Script: s.name, Took: time.Since(began),
		Failure: failureIn(err)})
}

// failureIn returns the failure of an error; empty if the error has none.
func failureIn(err error) string {
	if err == nil {
		return "" // saves the allocation of errors.As
	}
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) {
		return unavailable.Failure
	}
	return ""
}
