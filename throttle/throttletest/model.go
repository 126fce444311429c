package throttletest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Model is a throttle without Redis, by the algorithm in plain Go. It is the oracle that the
// scripts are compared with step by step. Its calls take the time as an argument. It is not
// safe for concurrent use.
type Model struct {
	throttle *throttle.Throttle
	driver   throttle.Driver
	memory   *memory
	scopes   []throttle.Scope
	options  throttle.Options
}

// NewModel returns an empty model of a throttle with these scopes and options. It panics if
// throttle.New refuses them.
func NewModel(scopes []throttle.Scope, options throttle.Options) *Model {
	return newModel(scopes, options, newMemory())
}

func newModel(scopes []throttle.Scope, options throttle.Options, m *memory) *Model {
	options.Timeout, options.BreakAfter = time.Minute, -1
	th, err := throttle.New("model", m, scopes, &options)
	if err != nil {
		panic(fmt.Sprintf("throttletest: %v", err))
	}
	return &Model{throttle: th, driver: th.Driver(), memory: m, scopes: scopes, options: options}
}

// Clone returns an independent copy of the model.
func (m *Model) Clone() *Model { return newModel(m.scopes, m.options, m.memory.clone()) }

// Equal reports whether two models have the same state.
func (m *Model) Equal(other *Model) bool {
	return m.memory.line.Equal(other.memory.line)
}

// at sets the instant of the calls that follow.
func (m *Model) at(now time.Time) context.Context {
	m.memory.now = now.UnixMicro()
	return context.Background()
}

// asked returns the job that is passed to the throttle. The throttle measures the time left until
// the deadline by its own clock; the memory has that time exactly.
func (m *Model) asked(now time.Time, job throttle.Job) throttle.Job {
	delete(m.memory.left, job.ID)
	if !job.Deadline.IsZero() {
		left := job.Deadline.Sub(now)
		latest := microsecondsLeft(left)
		m.memory.left[job.ID] = leftOf{latest, min(job.MaxWait.Microseconds(), max(0, latest))}
		job.Deadline = time.Now().Add(left)
	}
	return job
}

// answerTo returns an answer with the deadline of the job that the caller asked for.
func answerTo(job throttle.Job, r throttle.Reservation, err error) (throttle.Reservation, error) {
	var late *throttle.DeadlineError
	if errors.As(err, &late) {
		late.Deadline = job.Deadline
	}
	if r.Outcome != 0 {
		r.Job.Deadline = job.Deadline
	}
	return r, err
}

// Reserve decides for a job.
func (m *Model) Reserve(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	r, err := m.throttle.Reserve(m.at(now), m.asked(now, job))
	return answerTo(job, r, err)
}

// ReserveAll decides for jobs, in their order.
func (m *Model) ReserveAll(now time.Time, jobs []throttle.Job) []throttle.Answer {
	asked := make([]throttle.Job, len(jobs))
	for i, job := range jobs {
		asked[i] = m.asked(now, job)
	}
	answers := m.throttle.ReserveAll(m.at(now), asked)
	for i := range answers {
		answers[i].Reservation, answers[i].Err = answerTo(jobs[i], answers[i].Reservation, answers[i].Err)
	}
	return answers
}

// Peek returns what Reserve would answer to a new job.
func (m *Model) Peek(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	r, err := m.throttle.Peek(m.at(now), m.asked(now, job))
	return answerTo(job, r, err)
}

// Cancel removes a waiting job or gives back a booking.
func (m *Model) Cancel(now time.Time, job throttle.Job) (bool, error) {
	return m.throttle.Cancel(m.at(now), job)
}

// Release turns a grant back into a booking.
func (m *Model) Release(now time.Time, granted throttle.Reservation) (bool, error) {
	return m.driver.Release(m.at(now), granted)
}

// Pull books the waiting jobs whose turn has come. It first frees the places of the ended
// jobs.
func (m *Model) Pull(now time.Time, ended ...throttle.Reservation) (throttle.Pulled, error) {
	return m.driver.Pull(m.at(now), ended...)
}

// Leave removes jobs that will not come, and gives back their bookings.
func (m *Model) Leave(now time.Time, ids []string) ([]bool, error) {
	return m.driver.Leave(m.at(now), ids)
}

// Lines returns a page of the scope keys under which jobs wait.
func (m *Model) Lines(now time.Time, from string) (inspect.LinesPage, error) {
	return inspect.New(m.throttle).Lines(m.at(now), from)
}

// Settle corrects what a grant was charged.
func (m *Model) Settle(now time.Time, granted throttle.Reservation, actual int64) (bool, error) {
	return m.throttle.Settle(m.at(now), granted, actual)
}

// SettleCosts corrects what a grant was charged in each scope.
func (m *Model) SettleCosts(now time.Time, granted throttle.Reservation, actual map[string]int64) (bool, error) {
	return m.throttle.SettleCosts(m.at(now), granted, actual)
}

// Refund takes back what a grant was charged.
func (m *Model) Refund(now time.Time, granted throttle.Reservation) (bool, error) {
	return m.throttle.Refund(m.at(now), granted)
}

// Done ends granted jobs.
func (m *Model) Done(now time.Time, granted ...throttle.Reservation) ([]bool, error) {
	return m.throttle.Done(m.at(now), granted...)
}

// Renew renews the leases of granted jobs.
func (m *Model) Renew(now time.Time, granted ...throttle.Reservation) ([]bool, error) {
	return m.throttle.Renew(m.at(now), granted...)
}

// Report makes the limits of a scope key follow its upstream.
func (m *Model) Report(now time.Time, scope, key string, r throttle.Report) (throttle.Adaptation, error) {
	return m.throttle.Report(m.at(now), scope, key, r)
}

// Pause closes a scope key.
func (m *Model) Pause(now time.Time, scope, key string, until time.Time) (time.Time, error) {
	ctx, left := m.at(now), max(0, until.Sub(now))
	m.memory.pause = left.Microseconds()
	return inspect.New(m.throttle).Pause(ctx, scope, key, time.Now().Add(left))
}

// Resume ends a pause.
func (m *Model) Resume(now time.Time, scope, key string) (bool, error) {
	return inspect.New(m.throttle).Resume(m.at(now), scope, key)
}

// SetLimits sets limits at run time.
func (m *Model) SetLimits(now time.Time, scope, key string, limits []throttle.Limit, until time.Time) error {
	return inspect.New(m.throttle).SetLimits(m.at(now), scope, key, limits, m.lasts(now, until))
}

// lasts makes the next limits or mode end at a time.
func (m *Model) lasts(now, until time.Time) inspect.SetOption {
	if until.IsZero() {
		return nil
	}
	left := until.Sub(now)
	if m.memory.lasts = left.Microseconds(); left > 0 {
		left = max(left, time.Hour) // any end that has not passed: the memory has the exact one
	}
	return inspect.Until(time.Now().Add(left))
}

// ResetLimits takes back limits that were set at run time.
func (m *Model) ResetLimits(now time.Time, scope, key string) error {
	return inspect.New(m.throttle).ResetLimits(m.at(now), scope, key)
}

// SetMode sets a mode at run time.
func (m *Model) SetMode(now time.Time, scope string, mode throttle.Mode, until time.Time) error {
	return inspect.New(m.throttle).SetMode(m.at(now), scope, mode, m.lasts(now, until))
}

// ResetMode takes back a mode that was set at run time.
func (m *Model) ResetMode(now time.Time, scope string) error {
	return inspect.New(m.throttle).ResetMode(m.at(now), scope)
}

// Usage returns the usage of a scope key.
func (m *Model) Usage(now time.Time, scope, key string) (inspect.Usage, error) {
	return inspect.New(m.throttle).Usage(m.at(now), scope, key)
}

// Count counts the units of a past interval.
func (m *Model) Count(now time.Time, scope, key string, from, to time.Duration) (int64, error) {
	return inspect.New(m.throttle).Count(m.at(now), scope, key, from, to)
}

// microsecondsLeft returns -1 for a time that has passed.
func microsecondsLeft(left time.Duration) int64 {
	if left < 0 {
		return -1
	}
	return left.Microseconds()
}
