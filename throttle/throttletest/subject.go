package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Subject is a throttle whose calls take the time as an argument, so that a test can pass
// hours at once. It answers as a throttle.Throttle, its Driver and an inspect.Inspector do. Limits and modes
// that are set until the zero time last until they are reset.
type Subject interface {
	Reserve(now time.Time, job throttle.Job) (throttle.Reservation, error)
	ReserveAll(now time.Time, jobs []throttle.Job) []throttle.Answer
	Peek(now time.Time, job throttle.Job) (throttle.Reservation, error)
	Cancel(now time.Time, job throttle.Job) (bool, error)
	Release(now time.Time, granted throttle.Reservation) (bool, error)
	Pull(now time.Time, ended ...throttle.Reservation) (throttle.Pulled, error)
	Leave(now time.Time, ids []string) ([]bool, error)
	Lines(now time.Time, from string) (inspect.LinesPage, error)
	Settle(now time.Time, granted throttle.Reservation, actual int64) (bool, error)
	SettleCosts(now time.Time, granted throttle.Reservation, actual map[string]int64) (bool, error)
	Refund(now time.Time, granted throttle.Reservation) (bool, error)
	Done(now time.Time, granted ...throttle.Reservation) ([]bool, error)
	Renew(now time.Time, granted ...throttle.Reservation) ([]bool, error)
	Report(now time.Time, scope, key string, r throttle.Report) (throttle.Adaptation, error)
	Pause(now time.Time, scope, key string, until time.Time) (time.Time, error)
	Resume(now time.Time, scope, key string) (bool, error)
	SetLimits(now time.Time, scope, key string, limits []throttle.Limit, until time.Time) error
	ResetLimits(now time.Time, scope, key string) error
	SetMode(now time.Time, scope string, mode throttle.Mode, until time.Time) error
	ResetMode(now time.Time, scope string) error
	Usage(now time.Time, scope, key string) (inspect.Usage, error)
	Count(now time.Time, scope, key string, from, to time.Duration) (int64, error)
}
