// Package inspect shows the state of a throttle and changes it at run time: what counts, what waits and
// why, and pauses, limits and modes. It decides for no job: that is left to package throttle, which does not
// import this package.
package inspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Inspector shows the state of a throttle and changes it at run time. A program that has the throttle
// calls New, any other program Attach. Most callers want:
//
//   - Usage and UsageAll, for the units that count under each limit;
//   - Lines and Lanes, for what waits and under which scope key;
//   - Explain and ExplainID, for one job; Forecast, for jobs that do not exist yet;
//   - Pause, SetLimits and SetMode, to change what is in force, and Settings and Changes to see it;
//   - Check and Processes, for whether Redis and the processes are fit.
//
// An Inspector is safe for use by many goroutines and needs no closing.
type Inspector struct {
	throttle *throttle.Throttle
	in       throttle.Inside
	name     string
	prefix   string // of the Redis keys
	options  throttle.Options
	scopes   []throttle.Scope
	fair     string // the fair scope's name, empty for first come, first served
}

// New returns an Inspector of th, which shares the throttle's configuration, client and circuit breaker.
// New costs little and does not block.
func New(th *throttle.Throttle) *Inspector {
	in := th.Inside(seam.Key{})
	p := in.Process()
	return &Inspector{throttle: th, in: in, name: th.Name(), prefix: wire.Prefix(th.Name()),
		options: in.Options(), scopes: p.Scopes, fair: p.FairScope}
}

// Name returns the throttle's name.
func (t *Inspector) Name() string { return t.name }

// Client returns the client that the throttle uses: the one that was passed to New, or a copy of it with
// the throttle's timeout.
func (t *Inspector) Client() redis.Scripter { return t.in.Client() }

// Peek returns what Reserve would answer, as throttle.Throttle.Peek does.
func (t *Inspector) Peek(ctx context.Context, job throttle.Job) (throttle.Reservation, error) {
	return t.throttle.Peek(ctx, job)
}

// Leave takes jobs that will not come out of line, as throttle.Driver.Leave does.
func (t *Inspector) Leave(ctx context.Context, ids []string) ([]bool, error) {
	return t.throttle.Driver().Leave(ctx, ids)
}

// Processes returns what the processes of this throttle have published, also processes of other state
// versions: live ones first, and among them the newest first. It blocks for one round trip and fails as
// Usage does.
func (t *Inspector) Processes(ctx context.Context) ([]throttle.Process, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	return t.in.Processes(ctx)
}

// errNoContext is the error of a call without a context.
var errNoContext = &throttle.ArgumentError{Argument: "ctx", Reason: "is nil"}

// badReply is the error for an answer that the script never gives.
func badReply(script string) error {
	return fmt.Errorf("throttle: script %s gave an answer that is none of its own: %w", script, throttle.ErrState)
}

// withJob adds the job's ID and nonce to a *throttle.UnavailableError.
func withJob(err error, job throttle.Job) error {
	var unavailable *throttle.UnavailableError
	if errors.As(err, &unavailable) {
		unavailable.Job, unavailable.Nonce = job.ID, job.Nonce
	}
	return err
}

// order is a checked job with what it takes of each scope key.
type order struct {
	seam.Order
	job throttle.Job
}

func (t *Inspector) order(ctx context.Context, job throttle.Job) (*order, error) {
	o, err := t.in.Order(ctx, job)
	return &order{o, job}, err
}

// charged returns what the job takes of a scope key; nil if the scope key does not concern the job.
func (o *order) charged(name string) *seam.Charge {
	for i := range o.Charges {
		if o.Charges[i].Name == name {
			return &o.Charges[i]
		}
	}
	return nil
}
