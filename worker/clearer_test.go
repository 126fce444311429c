package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// twentyForAll is a limit that all share, 20 a second.
var twentyForAll = []throttle.Scope{
	{Name: throttle.Global, Limits: []throttle.Limit{{Units: 20, Window: time.Second, Precision: throttle.Exact}}},
	{Name: "tenant"},
}

// TestOthersGoOn: a tenant has a long line in a queue of its own, which is paused, or whose
// tasks are deleted. In real time another tenant goes on all the same, and the line is
// empty in the end. Full runs assert how long the other tenant waits for a start: when the
// worker asked about one task after the other, it waited 11 and 15 s.
func TestOthersGoOn(t *testing.T) {
	t.Parallel()
	crowd := longtest.Of(1_500, 20_000)
	for name, leave := range map[string]func(tasks *asynq.Inspector) error{
		"paused": func(tasks *asynq.Inspector) error { return tasks.PauseQueue("crowd") },
		"deleted": func(tasks *asynq.Inspector) error {
			_, planned := tasks.DeleteAllScheduledTasks("crowd")
			_, putBack := tasks.DeleteAllRetryTasks("crowd")
			_, pending := tasks.DeleteAllPendingTasks("crowd")
			return errors.Join(planned, putBack, pending)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			othersGoOn(t, crowd, leave)
		})
	}
}

func othersGoOn(t *testing.T, crowd int, leave func(tasks *asynq.Inspector) error) {
	t.Helper()
	const before = 20
	others := longtest.Of(100, 200)
	client := redistest.Start(t).Client(t)
	th, err := throttle.New("others", client, twentyForAll, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s, err := worker.New(th, client, jobOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	planner, err := worker.NewClient(th, client, jobOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(first, n int, tenant, queue string) {
		all := make([]*asynq.Task, n)
		for i := range all {
			all[i] = worker.NewTask("mail", nil, headers(tenant, 1), asynq.TaskID(fmt.Sprintf("%06d", first+i)),
				asynq.Queue(queue))
		}
		if _, err := planner.EnqueueAll(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(0, crowd, "a", "crowd")
	starts := make(chan time.Time, others)
	server := asynq.NewServerFromRedisClient(client, s.Configure(asynq.Config{
		Concurrency: 64, Queues: map[string]int{"crowd": 1, "own": 1}, LogLevel: asynq.FatalLevel, Logger: silent{},
	}))
	if err := server.Start(s.Wrap(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Headers()["tenant"] == "b" {
			starts <- time.Now()
		}
		return nil
	}))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		server.Shutdown()
	})
	enqueue(crowd, others, "b", "own")
	const patience = 2 * time.Minute
	started := func() time.Time {
		select {
		case at := <-starts:
			return at
		case <-time.After(patience):
			t.Fatalf("no start of b within %s", patience)
			return time.Time{}
		}
	}
	for range before {
		started()
	}

	last, longest := time.Now(), time.Duration(0)
	if err := leave(asynq.NewInspectorFromRedisClient(client)); err != nil {
		t.Fatal(err)
	}
	for range others - before {
		at := started()
		longest, last = max(longest, at.Sub(last)), at
	}
	t.Logf("of %d tasks that stand in line none comes; another tenant waits for a start for %s at most", crowd, longest)
	if longtest.Full() && longest > grace { // other long tests take the processors
		t.Errorf("the other tenant had no start for %s, want at most %s", longest, grace)
	}
	redistest.Await(t, "the line is empty", func() bool {
		page, err := inspect.New(th).Lines(t.Context(), "")
		return err == nil && len(page.Lines) == 0
	})
}

// leavings counts the calls that give places in line back.
type leavings struct {
	told
	calls atomic.Int64
}

// Called implements throttle.Observer.
func (o *leavings) Called(call throttle.ScriptCall) {
	if call.Script == "leave" {
		o.calls.Add(1)
	}
}

// TestClearedLane: the tasks of a tenant stand in line, those of two queues in one lane,
// and nearly all will not come. Two processes take these out. The other tasks of the lane and
// the tasks of another tenant run once each, at once. So do the tasks of the paused queue, when
// it goes on.
func TestClearedLane(t *testing.T) {
	t.Parallel()
	each := longtest.Of(75, 150) // one in so many is left
	all := func(do func(w *world, id string) error) func(w *world) {
		return func(w *world) {
			resting, err := w.tasks.ListRetryTasks("crowd", asynq.PageSize(10_000))
			if err != nil {
				w.t.Fatal(err)
			}
			for _, info := range resting {
				if err := do(w, info.ID); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
	rows := map[string]struct {
		leave   func(w *world)
		pending bool // the tasks wait in their queue and run when it goes on
	}{
		"deleted":  {leave: all(func(w *world, id string) error { return w.tasks.DeleteTask("crowd", id) })},
		"archived": {leave: all(func(w *world, id string) error { return w.tasks.ArchiveTask("crowd", id) })},
		"paused": {leave: func(w *world) {
			if err := w.tasks.PauseQueue("crowd"); err != nil {
				w.t.Fatal(err)
			}
		}, pending: true},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observer := new(leavings)
			inBubbleWith(t, twentyForAll, &throttle.Options{Observer: observer}, func(t *testing.T, w *world) {
				crowd, others := longtest.Of(300, 600), 100
				var left []string
				for n := range crowd {
					queue := "crowd"
					if n%each == each-1 {
						queue = "own"
						left = append(left, fmt.Sprintf("%06d", n))
					}
					w.enqueue(n, "a", 1, asynq.Queue(queue))
				}
				config := asynq.Config{Concurrency: 16, Queues: map[string]int{"crowd": 1, "own": 1}}
				w.serve(config)
				second := w.newShaper(nil)
				w.serveWith(second, config)
				w.until("a's tasks stand in line", time.Minute,
					func() bool { return w.shaper.Stats().PutBack+second.Stats().PutBack >= int64(crowd-30) })
				for n := range others {
					left = append(left, w.enqueue(crowd+n, "b", 1, asynq.Queue("own")))
				}
				time.Sleep(time.Second)
				row.leave(w)
				at := time.Now()
				w.until("the others have run", 10*time.Second, func() bool {
					for _, id := range left {
						if w.ran(id) == 0 {
							return false
						}
					}
					return true
				})
				took := time.Since(at)
				w.until("nobody waits", 5*time.Second, func() bool {
					page, err := inspect.New(w.throttle).Lines(t.Context(), "")
					return err == nil && len(page.Lines) == 0
				})
				info, err := w.tasks.GetQueueInfo("crowd")
				if err != nil {
					t.Fatal(err)
				}
				w.mu.Lock()
				ran := len(w.runs)
				w.mu.Unlock()
				calls := observer.calls.Load()
				t.Logf(
					"the others have run after %s; of the crowd %d had, %d are pending; %d calls have given back",
					took, ran-len(left), info.Pending, calls)
				if calls > int64(crowd/5) {
					t.Errorf("%d calls have given back, want many places with each", calls)
				}
				if row.pending {
					if missing := crowd + others - ran - info.Pending; missing != 0 {
						t.Errorf("%d tasks of the paused queue are not pending", missing)
					}
					if err := w.tasks.UnpauseQueue("crowd"); err != nil {
						t.Fatal(err)
					}
					ran = crowd + others
					w.drained(ran, 2*time.Minute)
				}
				time.Sleep(10 * time.Second)
				w.checked(ran)
			})
		})
	}
}
