package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// tryLater is the answer of the two simple policies to a task without room.
type tryLater struct{ in time.Duration }

func (e *tryLater) Error() string { return fmt.Sprintf("no room, try again in %s", e.in) }

// slidingLog is a log of starts per scope key. To each task without room it says when enough
// of the oldest entries will have left.
type slidingLog struct {
	scopes []throttle.Scope
	starts map[[2]string][]time.Time
}

func (l *slidingLog) ask(keys map[string]string, now time.Time) (wait time.Duration) {
	for _, scope := range l.scopes {
		limit, name := scope.Limits[0], [2]string{scope.Name, keys[scope.Name]}
		starts := l.starts[name]
		for len(starts) > 0 && !starts[0].After(now.Add(-limit.Window)) {
			starts = starts[1:]
		}
		l.starts[name] = starts
		if over := len(starts) + 1 - int(limit.Units); over > 0 {
			wait = max(wait, starts[over-1].Add(limit.Window).Sub(now))
		}
	}
	if wait == 0 {
		for _, scope := range l.scopes {
			name := [2]string{scope.Name, keys[scope.Name]}
			l.starts[name] = append(l.starts[name], now)
		}
	}
	return wait
}

// cellRate is the generic cell rate algorithm as redis_rate has it, asked for one scope after
// the other. To a task without room it says when the next unit drips.
type cellRate struct {
	scopes []throttle.Scope
	due    map[[2]string]time.Time // the theoretical arrival time
}

func (c *cellRate) ask(keys map[string]string, now time.Time) time.Duration {
	for _, scope := range c.scopes {
		limit, name := scope.Limits[0], [2]string{scope.Name, keys[scope.Name]}
		interval := limit.Window / time.Duration(limit.Units)
		due := c.due[name]
		if due.Before(now) {
			due = now
		}
		due = due.Add(interval)
		if allowed := due.Add(-limit.Window); allowed.After(now) {
			return allowed.Sub(now)
		}
		c.due[name] = due
	}
	return 0
}

// TestPutBacksBesideSimplePolicies drains the same tasks in the same virtual world by the two
// policies that handlers usually have. It has a fifth of the tasks and of the limits of a full
// TestDrain, or a tenth: as many windows, and so as many put-backs per job.
func TestPutBacksBesideSimplePolicies(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	half := longtest.Of(2, 1)
	tasks := 400 / half
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(int64(40/half), 2*time.Second)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.Per(int64(10/half), 2*time.Second)}},
	}
	enqueue := func(w *world) {
		for n := range tasks {
			w.enqueuePlain(n, fmt.Sprintf("t%d", n%8), 1)
		}
		w.began = time.Now()
	}
	report := func(w *world, name string, putBacks int64) float64 {
		over := throttletest.Check(scopes, w.starts)
		perJob := float64(putBacks) / float64(tasks)
		w.t.Logf("%-40s put back %6.3f per job, makespan %7s of %s, %d windows over", name, perJob,
			w.makespan().Round(10*time.Millisecond), optimum(scopes, w.starts), len(over))
		return perJob
	}
	var ours float64
	inBubble(t, scopes, func(_ *testing.T, w *world) {
		enqueue(w)
		w.serve(asynq.Config{Concurrency: 16})
		w.drained(tasks, time.Hour)
		w.checked(tasks)
		ours = report(w, "booked slots", w.shaper.Stats().PutBack)
	})
	peers := []struct {
		name string
		ask  func(keys map[string]string, now time.Time) time.Duration
	}{
		{"retry when the oldest entries leave", (&slidingLog{scopes, make(map[[2]string][]time.Time)}).ask},
		{"asynq's recipe with redis_rate", (&cellRate{scopes, make(map[[2]string]time.Time)}).ask},
	}
	for _, peer := range peers {
		inBubble(t, scopes, func(t *testing.T, w *world) {
			enqueue(w)
			var mu sync.Mutex
			var putBacks int64
			w.start(w.client, asynq.Config{
				Concurrency:              16,
				TaskCheckInterval:        50 * time.Millisecond,
				DelayedTaskCheckInterval: 200 * time.Millisecond,
				IsFailure:                func(err error) bool { return !errors.As(err, new(*tryLater)) },
				RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
					var later *tryLater
					errors.As(err, &later)
					return later.in
				},
			}, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				job, err := jobOf(ctx, task)
				if err != nil {
					return err
				}
				mu.Lock()
				now := time.Now()
				wait := peer.ask(job.Keys, now)
				if wait > 0 {
					putBacks++
				}
				mu.Unlock()
				if wait > 0 {
					return &tryLater{wait}
				}
				id, _ := asynq.GetTaskID(ctx)
				w.mu.Lock()
				w.starts = append(w.starts, throttletest.Start{At: now, Weight: 1, Keys: job.Keys})
				w.waits[id] = time.Since(w.began)
				w.ended[id] = now
				w.mu.Unlock()
				time.Sleep(w.handle)
				return nil
			}))
			w.drained(tasks, time.Hour)
			if theirs := report(w, peer.name, putBacks); theirs < 5*ours {
				t.Errorf("%s: put back %.3f per job, want at least 5 times our %.3f", peer.name, theirs, ours)
			}
		})
	}
}
