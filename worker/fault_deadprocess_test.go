package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestPlacesOfADeadProcess: the places of a process that died are used again when its leases are
// over, at whatever point of its work it died, while more tasks wait than there are places.
func TestPlacesOfADeadProcess(t *testing.T) {
	t.Parallel()
	const places, lease, processes, atOnce = 20, 2 * time.Second, 4, 4
	for seed := range uint64(longtest.Of(3, 20)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			scopes := []throttle.Scope{{Name: throttle.Global,
				Limits: []throttle.Limit{{Units: places, Running: true, Lease: lease}}}}
			inBubble(t, scopes, func(t *testing.T, w *world) {
				random := rand.New(rand.NewPCG(1, seed))
				var r record
				var held atomic.Int64 // units, by the process that is to die
				link, dead := newWire(w), make(chan struct{})
				job := func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
					j, err := jobOf(ctx, task)
					j.Keys = nil
					return j, err
				}
				took := make(map[string]time.Duration)
				for n := range 600 {
					took[w.enqueue(n, "acme", 1+random.Int64N(5))] = time.Duration(50+random.IntN(200)) * time.Millisecond
				}
				for range processes - 1 {
					s := w.newShaperOf(job, nil)
					w.start(w.client, s.Configure(asynq.Config{Concurrency: atOnce}),
						s.Wrap(r.handler(w, func(id string) time.Duration { return took[id] })))
				}
				th, err := throttle.New("world", link.client, scopes, &throttle.Options{Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				s, err := worker.New(th, link.client, job, &worker.Options{Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Stop)
				w.start(link.client, s.Configure(asynq.Config{Concurrency: atOnce}),
					s.Wrap(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
						id, _ := asynq.GetTaskID(ctx)
						grant, _ := worker.Grant(ctx)
						held.Add(grant.Job.Weight)
						timer := time.NewTimer(took[id])
						defer timer.Stop()
						select {
						case <-timer.C:
							held.Add(-grant.Job.Weight)
						case <-dead:
						}
						return nil
					})))
				time.Sleep(time.Second + time.Duration(random.IntN(1000))*time.Millisecond)
				w.until("the process holds places", time.Minute, func() bool { return held.Load() > 7 })
				died, killed := held.Load(), time.Now()
				link.cut()
				time.Sleep(lease + 2*time.Second)
				close(dead)
				link.mend()
				again := r.fullAgain(killed, places-5)
				t.Logf("%d units died, all places were used again after %s", died, again)
				if again > lease+time.Second {
					t.Errorf("the dead process' places were used again after %s, want up to %s", again, lease+time.Second)
				}
			})
		})
	}
}

// fullAgain returns how long after an instant more than this many units ran.
func (r *record) fullAgain(since time.Time, units int64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.runs {
		if run.At.After(since) && unitsAt(r.runs, run.At) > units {
			return run.At.Sub(since)
		}
	}
	return time.Hour
}

// unitsAt returns how many units ran at an instant.
func unitsAt(runs []throttletest.Start, at time.Time) (units int64) {
	for _, run := range runs {
		if !run.At.After(at) && (run.End.IsZero() || run.End.After(at)) {
			units += run.Weight
		}
	}
	return units
}
