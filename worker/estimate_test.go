package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/estimate"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

func newEstimator(t *testing.T, cold int64, opts *estimate.Options) *estimate.Estimator {
	t.Helper()
	e, err := estimate.New(cold, opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// atOnce learns from the first settlement on.
var atOnce = &estimate.Options{Quantile: 0.5}

// sized is an Options.Kind: the size is the task's weight, the kind its tenant.
func sized(task *asynq.Task) (kind string, size int64) {
	size, _ = strconv.ParseInt(task.Headers()["weight"], 10, 64)
	return task.Headers()["tenant"], size
}

// unweighed is a JobFunc that leaves the weight to the estimator.
func unweighed(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
	job, err := jobOf(ctx, task)
	job.Weight = 0
	return job, err
}

// TestEstimator lets a handler settle one task, and checks what the next task is charged.
func TestEstimator(t *testing.T) {
	t.Parallel()
	settle := func(actual ...int64) func(ctx context.Context) error {
		return func(ctx context.Context) (err error) {
			for _, units := range actual {
				err = errors.Join(err, worker.Settle(ctx, units))
			}
			return err
		}
	}
	failed := errors.New("the upstream failed")
	rows := []struct {
		name   string
		job    worker.JobFunc
		kind   func(task *asynq.Task) (string, int64)
		settle func(ctx context.Context) error
		first  int64 // what the first is charged, of size 6
		next   int64 // and the next, of size 12
	}{
		{"by its type", unweighed, nil, settle(5), 20, 5},
		{"by kind and size", unweighed, sized, settle(9), 26, 18},
		{"a weight of its own is charged, and teaches", jobOf, nil, settle(5), 6, 12},
		{"never settled", unweighed, sized, func(context.Context) error { return nil }, 26, 32},
		{"settled twice", unweighed, nil, settle(5, 50), 20, 5},
		{"for nothing", unweighed, nil, settle(0), 20, 20},
		{"a mistake, then right", unweighed, nil, func(ctx context.Context) error {
			if worker.Settle(ctx, -1) == nil || worker.Settle(ctx, math.MaxInt64) == nil {
				t.Error("a mistake was settled")
			}
			return worker.Settle(ctx, 7)
		}, 20, 7},
		{"refunded", unweighed, nil, worker.Refund, 20, 20},
		{"scope by scope", unweighed, nil, func(ctx context.Context) error {
			return worker.SettleCosts(ctx, map[string]int64{"tenant": 5})
		}, 20, 20},
		{"and then failed", unweighed, nil,
			func(ctx context.Context) error { return errors.Join(worker.Settle(ctx, 5), failed) }, 20, 5},
		{"and then untouched", unweighed, nil, func(ctx context.Context) error { return worker.Untouched(failed) }, 20, 20},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(1000, time.Hour), func(t *testing.T, w *world) {
				estimator := newEstimator(t, 20, atOnce)
				s := w.newShaperOf(row.job, &worker.Options{Estimator: estimator, Kind: row.kind})
				charged := make(map[string]int64) // for its first run, by task
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					id, _ := asynq.GetTaskID(ctx)
					if w.ran(id) > 1 {
						return nil
					}
					grant, _ := worker.Grant(ctx)
					w.mu.Lock()
					charged[id] = grant.Job.Weight
					w.mu.Unlock()
					return row.settle(ctx)
				}
				w.serveWith(s, asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible})
				first := w.enqueue(0, "acme", 6)
				w.until("the first has succeeded", time.Minute, w.gone(first))
				next := w.enqueue(1, "acme", 12)
				w.until("the next has succeeded", time.Minute, w.gone(next))
				w.mu.Lock()
				defer w.mu.Unlock()
				if charged[first] != row.first || charged[next] != row.next {
					t.Errorf("charged %d, and the next %d; want %d and %d", charged[first], charged[next], row.first, row.next)
				}
			})
		})
	}
}

// TestEstimator_Client: a planned task is booked with the weight that the client's process has learned.
func TestEstimator_Client(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1000, time.Hour), func(t *testing.T, w *world) {
		estimator := newEstimator(t, 20, atOnce)
		c, err := worker.NewClient(w.throttle, w.client, unweighed, &worker.Options{Estimator: estimator, Kind: sized})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int64{26, 26 + 9} {
			if _, err := c.Enqueue(t.Context(), mails(1, func(int) int64 { return 6 }, "acme")[0],
				asynq.TaskID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			if _, booked := w.used("acme"); booked != want {
				t.Errorf("%d units are booked, want %d", booked, want)
			}
			estimator.Learn("acme", 6, 9)
		}
	})
}

// TestEstimator_Goal: the size predicts four fifths of the units, and the rest varies by 0.5, under a
// limit that is always full. After 200 settlements charges are at most 1.25 times what is
// settled, and no window holds more than its limit, as the upstream counts.
func TestEstimator_Goal(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const tasks = 300
	scopes := perTenant(3000, 6*time.Second)
	inBubble(t, scopes, func(t *testing.T, w *world) {
		random := rand.New(rand.NewPCG(4, 200))
		took := make(map[string]int64)
		for i := range tasks {
			prompt := 80 * math.Exp(0.5*random.NormFloat64())
			answer := 20 * math.Exp(0.5*random.NormFloat64())
			took[w.enqueue(i, "acme", int64(prompt))] = int64(prompt + answer)
		}
		s := w.newShaperOf(unweighed, &worker.Options{Estimator: newEstimator(t, 80, nil), Kind: sized})
		var starts []throttletest.Start // as the upstream counts them
		var charged, settled int64      // by those that start after 200 settlements
		ended := 0
		w.handle = 0
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			grant, _ := worker.Grant(ctx)
			w.mu.Lock()
			starts = append(starts, throttletest.Start{At: grant.Start, Weight: took[id], Keys: grant.Job.Keys})
			if ended >= 200 {
				charged, settled = charged+grant.Job.Weight, settled+took[id]
			}
			w.mu.Unlock()
			time.Sleep(2 * time.Second)
			err := worker.Settle(ctx, took[id])
			w.mu.Lock()
			ended++
			w.mu.Unlock()
			return err
		}
		w.serveWith(s, asynq.Config{Concurrency: 40})
		w.drained(tasks, time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		ratio := float64(charged) / float64(settled)
		t.Logf("charged over settled %.3f; %s until the last start", ratio, time.Since(w.began))
		if most := longtest.Of(1.35, 1.25); ratio < 1 || ratio > most || settled == 0 {
			t.Errorf("charged %d over settled %d is %.3f, want 1 to %v", charged, settled, ratio, most)
		}
		if s.Stats().PutBack == 0 || len(starts) != tasks {
			t.Errorf("%d starts, %d put back; want %d, and some that are estimated anew when they come",
				len(starts), s.Stats().PutBack, tasks)
		}
		for _, over := range throttletest.Check(scopes, starts) {
			t.Errorf("window over its limit, as the upstream counts: %s", over)
		}
	})
}
