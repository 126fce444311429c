package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Subject is a throttle that is told the time, so that a test can go through
// hours of it. The answers are those of throttle.Throttle.
type Subject interface {
	Reserve(now time.Time, job throttle.Job) (throttle.Reservation, error)
	Peek(now time.Time, job throttle.Job) (throttle.Reservation, error)
	Cancel(now time.Time, job throttle.Job) (bool, error)
	Release(now time.Time, job throttle.Job) (bool, error)
	Pull(now time.Time, lane throttle.Lane) ([]throttle.Reservation, throttle.Lane, error)
	Sweep(now time.Time) (throttle.Swept, error)
	Lines(now time.Time, from string) (throttle.LinesPage, error)
	Settle(now time.Time, granted throttle.Reservation, actual int64) (bool, error)
	Pause(now time.Time, scope, key string, until time.Time) (time.Time, error)
	Resume(now time.Time, scope, key string) (bool, error)
	SetLimits(now time.Time, scope, key string, limits []throttle.Limit) error
	ResetLimits(now time.Time, scope, key string) error
	SetMode(now time.Time, scope string, mode throttle.Mode) error
	ResetMode(now time.Time, scope string) error
	Limits(now time.Time, scope, key string) (throttle.InForce, error)
	Usage(now time.Time, scope, key string) (throttle.Usage, error)
	Count(now time.Time, scope, key string, from, to time.Duration) (int64, error)
}
