package throttletest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Model is a throttle without Redis, by the algorithm in plain Go: the oracle that the
// scripts are compared with step by step. It is told the time. Not safe for use by
// several goroutines.
type Model struct {
	throttle *throttle.Throttle
	driver   throttle.Driver
	memory   *memory
	scopes   []throttle.Scope
	options  throttle.Options
}

// NewModel returns an empty model of a throttle with these scopes and options, which it
// panics on where throttle.New refuses them.
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

// Clone returns a model of its own that stands as this one.
func (m *Model) Clone() *Model { return newModel(m.scopes, m.options, m.memory.clone()) }

// Equal reports whether two models stand alike.
func (m *Model) Equal(other *Model) bool {
	return m.memory.line.Equal(other.memory.line)
}

// at has the calls that follow made at an instant.
func (m *Model) at(now time.Time) context.Context {
	m.memory.now = now.UnixMicro()
	return context.Background()
}

// asked is a job as the throttle is asked for it, which takes the time left until its
// deadline by its own clock; the memory knows it exactly.
func (m *Model) asked(now time.Time, job throttle.Job) throttle.Job {
	delete(m.memory.latest, job.ID)
	if !job.Deadline.IsZero() {
		left := job.Deadline.Sub(now)
		m.memory.latest[job.ID] = microsecondsLeft(left)
		job.Deadline = time.Now().Add(left)
	}
	return job
}

// told is an answer about a job as it was asked for.
func told(job throttle.Job, r throttle.Reservation, err error) (throttle.Reservation, error) {
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
	return told(job, r, err)
}

// ReserveAll decides for jobs, in their order.
func (m *Model) ReserveAll(now time.Time, jobs []throttle.Job) []throttle.Answer {
	asked := make([]throttle.Job, len(jobs))
	for i, job := range jobs {
		asked[i] = m.asked(now, job)
	}
	answers := m.throttle.ReserveAll(m.at(now), asked)
	for i := range answers {
		answers[i].Reservation, answers[i].Err = told(jobs[i], answers[i].Reservation, answers[i].Err)
	}
	return answers
}

// Peek says what Reserve would answer to a new job.
func (m *Model) Peek(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	r, err := m.throttle.Peek(m.at(now), m.asked(now, job))
	return told(job, r, err)
}

// Cancel gives back a place in line or a booking.
func (m *Model) Cancel(now time.Time, job throttle.Job) (bool, error) {
	return m.throttle.Cancel(m.at(now), job)
}

// Release makes a booking of a grant again.
func (m *Model) Release(now time.Time, granted throttle.Reservation) (bool, error) {
	return m.driver.Release(m.at(now), granted)
}

// Pull books the jobs in line whose turn has come. Before that it gives back what jobs hold
// that have ended.
func (m *Model) Pull(now time.Time, ended ...throttle.Reservation) (throttle.Pulled, error) {
	return m.driver.Pull(m.at(now), ended...)
}

// Leave gives back what jobs have that will not come.
func (m *Model) Leave(now time.Time, ids []string) ([]bool, error) {
	return m.driver.Leave(m.at(now), ids)
}

// Lines tells what waits.
func (m *Model) Lines(now time.Time, from string) (throttle.LinesPage, error) {
	return m.throttle.Inspector().Lines(m.at(now), from)
}

// Settle corrects what a grant was charged.
func (m *Model) Settle(now time.Time, granted throttle.Reservation, actual int64) (bool, error) {
	return m.throttle.Settle(m.at(now), granted, actual)
}

// SettleCosts corrects it for each scope.
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

// Renew has granted jobs run on for a lease.
func (m *Model) Renew(now time.Time, granted ...throttle.Reservation) ([]bool, error) {
	return m.throttle.Renew(m.at(now), granted...)
}

// Report has a scope key follow what its upstream says.
func (m *Model) Report(now time.Time, scope, key string, r throttle.Report) (throttle.Adaptation, error) {
	return m.throttle.Report(m.at(now), scope, key, r)
}

// Pause closes a scope key.
func (m *Model) Pause(now time.Time, scope, key string, until time.Time) (time.Time, error) {
	ctx, left := m.at(now), max(0, until.Sub(now))
	m.memory.pause = left.Microseconds()
	return m.throttle.Pause(ctx, scope, key, time.Now().Add(left))
}

// Resume opens it.
func (m *Model) Resume(now time.Time, scope, key string) (bool, error) {
	return m.throttle.Resume(m.at(now), scope, key)
}

// SetLimits sets limits at run time.
func (m *Model) SetLimits(now time.Time, scope, key string, limits []throttle.Limit, until time.Time) error {
	return m.throttle.Inspector().SetLimits(m.at(now), scope, key, limits, m.lasts(now, until))
}

// lasts has what is set next end at a time.
func (m *Model) lasts(now, until time.Time) throttle.SetOption {
	if until.IsZero() {
		return nil
	}
	left := until.Sub(now)
	if m.memory.lasts = left.Microseconds(); left > 0 {
		left = max(left, time.Hour) // the memory knows it exactly
	}
	return throttle.Until(time.Now().Add(left))
}

// ResetLimits takes them back.
func (m *Model) ResetLimits(now time.Time, scope, key string) error {
	return m.throttle.Inspector().ResetLimits(m.at(now), scope, key)
}

// SetMode sets a mode at run time.
func (m *Model) SetMode(now time.Time, scope string, mode throttle.Mode, until time.Time) error {
	return m.throttle.Inspector().SetMode(m.at(now), scope, mode, m.lasts(now, until))
}

// ResetMode takes it back.
func (m *Model) ResetMode(now time.Time, scope string) error {
	return m.throttle.Inspector().ResetMode(m.at(now), scope)
}

// Usage tells how a scope key stands.
func (m *Model) Usage(now time.Time, scope, key string) (throttle.Usage, error) {
	return m.throttle.Inspector().Usage(m.at(now), scope, key)
}

// Count counts the units of a past interval.
func (m *Model) Count(now time.Time, scope, key string, from, to time.Duration) (int64, error) {
	return m.throttle.Inspector().Count(m.at(now), scope, key, from, to)
}

// microsecondsLeft is -1 for less than none.
func microsecondsLeft(left time.Duration) int64 {
	if left < 0 {
		return -1
	}
	return left.Microseconds()
}
