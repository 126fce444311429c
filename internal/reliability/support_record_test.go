package reliability_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// start is one call of a handler.
type start struct {
	Task    string
	Tenant  string
	At      time.Time // the granted start, on Redis' clock
	Decided time.Time // when it was granted, on Redis' clock
	Begun   time.Time // when the handler was called, on this machine's clock
}

var errNoGrant = errors.New("the handler has no grant")

func startOf(ctx context.Context) (start, error) {
	grant, ok := worker.Grant(ctx)
	if !ok {
		return start{}, errNoGrant
	}
	id, _ := asynq.GetTaskID(ctx)
	return start{Task: id, Tenant: grant.Job.Keys["tenant"], At: grant.Start, Decided: grant.Now, Begun: time.Now()}, nil
}

// record is where the handlers of all processes note their calls. It is safe for use by many
// goroutines.
type record struct {
	mu      sync.Mutex
	starts  []start
	refused map[string]int // how many tasks were put back because Redis could not decide, by failure
}

func newRecord() *record { return &record{refused: make(map[string]int)} }

// add notes a start.
func (r *record) add(s start) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts = append(r.starts, s)
	return nil
}

// watch returns a handler around the shaper's handler. It counts tasks that are put back without
// a decision.
func (r *record) watch(inner asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := inner.ProcessTask(ctx, task)
		var unavailable *throttle.UnavailableError
		if worker.IsPutBack(err) && errors.As(err, &unavailable) {
			r.mu.Lock()
			r.refused[unavailable.Failure]++
			r.mu.Unlock()
		}
		return err
	})
}

// begun returns the number of starts.
func (r *record) begun() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.starts)
}

// begunBefore returns the number of starts before an instant.
func (r *record) begunBefore(at time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.starts {
		if s.Begun.Before(at) {
			n++
		}
	}
	return n
}

// within returns how many jobs have started in the last time of the given length.
func (r *record) within(last time.Duration) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Backward(r.starts) {
		if time.Since(s.Begun) > last {
			break // the starts are almost in order, so all earlier ones are too old
		}
		n++
	}
	return n
}

// quiet reports whether no job has started for a while.
func (r *record) quiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.starts) > 0 && time.Since(r.starts[len(r.starts)-1].Begun) > 2*time.Second
}

// putBackFor returns how many tasks were put back for one of these failures.
func (r *record) putBackFor(failures ...string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, failure := range failures {
		n += r.refused[failure]
	}
	return n
}

// all returns the starts in the order in which the handlers were called.
func (r *record) all() []start {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := slices.Clone(r.starts)
	slices.SortFunc(starts, func(a, b start) int { return a.Begun.Compare(b.Begun) })
	return starts
}

// runs returns how often each task ran.
func runs(starts []start) map[string]int {
	of := make(map[string]int)
	for _, s := range starts {
		of[s.Task]++
	}
	return of
}

// checkable returns the starts as throttletest.Check takes them.
func checkable(starts []start) []throttletest.Start {
	of := make([]throttletest.Start, len(starts))
	for i, s := range starts {
		of[i] = throttletest.Start{At: s.At, Weight: 1, Keys: map[string]string{"tenant": s.Tenant}}
	}
	return of
}
