package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// jobWithPriority is jobOf with the priority that a task's header has.
func jobWithPriority(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
	job, err := jobOf(ctx, task)
	if err == nil {
		_, err = fmt.Sscan(task.Headers()["priority"], &job.Priority)
	}
	return job, err
}

// withPriority returns a task of the tenant acme.
func withPriority(id string, weight int64, priority int) *asynq.Task {
	h := headers("acme", weight)
	h["priority"] = fmt.Sprint(priority)
	return worker.NewTask("mail", nil, h, asynq.TaskID(id))
}

// planned enqueues tasks of a priority in one call.
func (w *world) planned(client *worker.Client, name string, tasks, priority int, weight func() int64) {
	w.t.Helper()
	all := make([]*asynq.Task, tasks)
	for i := range all {
		all[i] = withPriority(fmt.Sprintf("%s%05d", name, i), weight(), priority)
	}
	if _, err := client.EnqueueAll(w.t.Context(), all); err != nil {
		w.t.Fatal(err)
	}
}

// prioritised runs a test in a world whose tasks have priorities, with a client that plans.
func prioritised(t *testing.T, limits []throttle.Limit, test func(w *world, client *worker.Client)) {
	scopes := []throttle.Scope{{Name: "tenant", Limits: limits}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		w.handle = time.Millisecond
		w.shaper = w.newShaperOf(jobWithPriority, nil)
		client, err := worker.NewClient(w.throttle, w.client, jobWithPriority, nil)
		if err != nil {
			t.Fatal(err)
		}
		test(w, client)
	})
}

// TestUrgentTasksBesideABacklog: 10,000 planned tasks of a lower priority wait. Urgent tasks come
// one by one and need half of the limit, which a second limit paces. 99 of 100 urgent tasks start
// within two seconds, the rest of the limit is used, and no window is over its limit.
func TestUrgentTasksBesideABacklog(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	backlog, seconds := longtest.Of(2000, 10_000), longtest.Of(16, 60)
	limits := []throttle.Limit{throttle.PerMinute(6000), throttle.Per(25, 250*time.Millisecond)}
	prioritised(t, limits, func(w *world, client *worker.Client) {
		w.planned(client, "batch", backlog, 1, func() int64 { return 1 })
		w.serve(asynq.Config{Concurrency: 64})
		r, came := rand.New(rand.NewPCG(1, 1)), make(map[string]time.Duration)
		w.began = time.Now()
		for w.began.Add(time.Duration(seconds) * time.Second).After(time.Now()) {
			id := fmt.Sprintf("urgent%05d", len(came))
			came[id] = time.Since(w.began)
			w.send(withPriority(id, 1+r.Int64N(3), 0))
			time.Sleep(time.Duration(r.Int64N(int64(80 * time.Millisecond))))
		}
		time.Sleep(3 * time.Second)
		w.withinLimits()
		w.mu.Lock()
		defer w.mu.Unlock()
		var waits []time.Duration
		for id, at := range came {
			if start, started := w.waits[id]; started {
				waits = append(waits, start-at)
			}
		}
		if len(waits) < len(came) {
			w.t.Fatalf("%d of %d have started", len(waits), len(came))
		}
		slices.Sort(waits)
		units := int64(0)
		for _, s := range w.starts {
			if at := s.At.Sub(w.began); at >= 0 && at < time.Duration(seconds)*time.Second {
				units += s.Weight
			}
		}
		p99, used := waits[len(waits)*99/100], float64(units)/float64(100*seconds)
		w.t.Logf("%d urgent tasks: p99 %s, most %s; the limit was used to %.3f", len(waits), p99, waits[len(waits)-1], used)
		if p99 > 2*time.Second {
			w.t.Errorf("p99 %s, want at most 2s", p99)
		}
		if least := longtest.Of(0.88, 0.95); used < least {
			w.t.Errorf("the limit was used to %.3f, want at least %v", used, least)
		}
	})
}

// TestLowerPriorityDrainsAtItsFloor: while tasks of both priorities wait, the lower priority has
// a tenth of the units, with weights of 1 to 5. Under a limit that is small compared with the
// weights it has more: jobs that fit beside a job that waits for its room start.
func TestLowerPriorityDrainsAtItsFloor(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	prioritised(t, []throttle.Limit{throttle.PerSecond(100)}, func(w *world, client *worker.Client) {
		r := rand.New(rand.NewPCG(2, 1))
		weight := func() int64 { return 1 + r.Int64N(5) }
		w.planned(client, "batch", 1000, 1, weight)
		w.planned(client, "urgent", 1000, 0, weight)
		const from, to = 5 * time.Second, 25 * time.Second // what was booked at first is through, and both wait
		var units [2]int64
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			grant, _ := worker.Grant(ctx)
			w.mu.Lock()
			defer w.mu.Unlock()
			if at := grant.Start.Sub(w.began); at >= from && at < to {
				units[grant.Job.Priority] += grant.Job.Weight
			}
			return nil
		}
		w.began = time.Now()
		w.serve(asynq.Config{Concurrency: 64})
		time.Sleep(to + time.Second)
		w.withinLimits()
		w.mu.Lock()
		defer w.mu.Unlock()
		part := float64(units[1]) / float64(units[0]+units[1])
		w.t.Logf("%v units, %.3f of them of the lower priority", units, part)
		if part < 0.08 || part > 0.12 || units[0]+units[1] < longtest.Of[int64](1750, 1900) {
			w.t.Errorf("%v units of 2,000, %.3f of the lower priority; want 0.1", units, part)
		}
	})
}
