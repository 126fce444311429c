package worker_test

import (
	"errors"
	"fmt"
	"sync"
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

// boundedTenants are tenants with one start a minute and lines of at most so many jobs.
func boundedTenants(most int64) []throttle.Scope {
	return []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(1)},
		MaxWaiting: throttle.Length{Jobs: most}}}
}

// TestManyClientsEnqueueUpToTheBound has two Clients, each with a throttle of its own as another process would have,
// enqueue from many goroutines at once. The line ends exactly at its bound, asynq has the tasks that were taken and no
// other, and a task that is deleted makes room for one.
func TestManyClientsEnqueueUpToTheBound(t *testing.T) {
	t.Parallel()
	const most, goroutines, each = 40, 8, 10
	client, name := redistest.Start(t).Client(t), redistest.Name(t)
	var clients [2]*worker.Client
	var th *throttle.Throttle
	for i := range clients {
		var err error
		if th, err = throttle.New(name, client, boundedTenants(most), &throttle.Options{Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if clients[i], err = worker.NewClient(th, client, jobOf, nil); err != nil {
			t.Fatal(err)
		}
	}
	var taken, refused atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", g, i)
				_, err := clients[g%2].Enqueue(t.Context(), worker.NewTask("mail", nil, headers("acme", 1)), asynq.TaskID(id))
				var full *throttle.LineFullError
				switch {
				case err == nil:
					taken.Add(1)
				case errors.As(err, &full) && full.Scope == "tenant" && full.Key == "acme" && full.Waiting.Jobs == most &&
					full.MaxWaiting.Jobs == most && full.Wait > 0:
					refused.Add(1)
				default:
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	all.Wait()
	if taken.Load() != most || refused.Load() != goroutines*each-most {
		t.Errorf("%d taken, %d refused; want %d and %d", taken.Load(), refused.Load(), most, goroutines*each-most)
	}
	asynqs := asynq.NewInspectorFromRedisClient(client)
	info, err := asynqs.GetQueueInfo("default")
	if err != nil || info.Size != most {
		t.Fatalf("asynq has %+v tasks, %v; want %d", info, err, most)
	}
	usage, err := inspect.New(th).Usage(t.Context(), "tenant", "acme")
	if err != nil || usage.Line != (throttle.Length{Jobs: most, Units: most}) || usage.MaxWaiting.Jobs != most {
		t.Errorf("line %v of %v, %v", usage.Line, usage.MaxWaiting, err)
	}
	waits, err := asynqs.ListScheduledTasks("default", asynq.PageSize(1))
	if err != nil || len(waits) != 1 {
		t.Fatal(waits, err)
	}
	if err := asynqs.DeleteTask("default", waits[0].ID); err != nil {
		t.Fatal(err)
	}
	freed, err := th.Cancel(t.Context(), throttle.Job{ID: worker.JobID("default", waits[0].ID, 0), Weight: 1,
		Keys: map[string]string{"tenant": "acme"}})
	if err != nil || !freed {
		t.Fatalf("freed %t, %v", freed, err)
	}
	for i, want := range []bool{true, false} {
		_, err := clients[0].Enqueue(t.Context(), worker.NewTask("mail", nil, headers("acme", 1)))
		if (err == nil) != want {
			t.Errorf("task %d after one was deleted: %v, want it taken: %t", i, err, want)
		}
	}
}

// TestBatchOverTheBound enqueues more tasks than their lines may have. The first are taken, the others say why not, and
// when the line is drained it has no job.
func TestBatchOverTheBound(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, boundedTenants(5), func(t *testing.T, w *world) {
		client := w.newClient()
		plan, err := client.EnqueueAll(t.Context(), mails(16, light, "acme", "globex"))
		var full *throttle.LineFullError
		if !errors.As(err, &full) {
			t.Fatalf("got %v, want a *LineFullError", err)
		}
		for i, p := range plan.Tasks {
			refused := errors.As(p.Err, &full)
			if refused != (i >= 10) || refused != (p.Info == nil) {
				t.Errorf("task %d: %v, in asynq: %t", i, p.Err, p.Info != nil)
			}
		}
		w.serve(asynq.Config{Concurrency: 4})
		w.drained(10, time.Hour)
		for _, tenant := range []string{"acme", "globex"} {
			usage, err := inspect.New(w.throttle).Usage(t.Context(), "tenant", tenant)
			if err != nil || usage.Line != (throttle.Length{}) {
				t.Errorf("the line of %s has %v, %v; want nothing", tenant, usage.Line, err)
			}
		}
		if stored, err := w.client.Exists(t.Context(), "thr:{world}:4:waiting").Result(); err != nil || stored != 0 {
			t.Errorf("lengths are stored of lines that are empty: %d, %v", stored, err)
		}
	})
}

// boundedClient enqueues tasks of one tenant, and asks how long its line is.
type boundedClient struct {
	*world
	client *worker.Client
	sent   int
}

// fill enqueues tasks and fails the test unless that many of them are taken, and the next one is refused.
func (c *boundedClient) fill(most int) {
	c.t.Helper()
	for n := range most + 1 {
		_, err := c.client.Enqueue(c.t.Context(), worker.NewTask("mail", nil, headers("acme", 1)),
			asynq.TaskID(fmt.Sprintf("%06d", c.sent)))
		var full *throttle.LineFullError
		if refused := n == most; refused && !errors.As(err, &full) || !refused && err != nil {
			c.t.Fatalf("task %d: %v, want it taken: %t", n, err, !refused)
		}
		if err == nil {
			c.sent++
		}
	}
}

// has returns a condition: the line has that many jobs.
func (c *boundedClient) has(jobs int64) func() bool {
	return func() bool {
		usage, err := inspect.New(c.throttle).Usage(c.t.Context(), "tenant", "acme")
		return err == nil && usage.Line == throttle.Length{Jobs: jobs, Units: jobs}
	}
}

// TestDrainedLineTakesTasks: a line that was full takes as many tasks again when its tasks have run, and no more.
func TestDrainedLineTakesTasks(t *testing.T) {
	t.Parallel()
	inBubble(t, boundedTenants(5), func(t *testing.T, w *world) {
		c := &boundedClient{world: w, client: w.newClient()}
		c.fill(5)
		w.serve(asynq.Config{Concurrency: 4})
		w.drained(5, 10*time.Minute)
		if !c.has(0)() {
			t.Fatal("the tasks have run, and are in line")
		}
		c.fill(5)
	})
}

// TestClearedTasksFreeTheirPlaces deletes tasks while they wait. When the first ones should start, the worker takes all
// of them out of line, those behind a task that has not started too, and the line takes as many others.
func TestClearedTasksFreeTheirPlaces(t *testing.T) {
	t.Parallel()
	const most, waits, left = 60, 41, 52 // a task behind 40 deleted ones; the first of those at the end that stay
	inBubble(t, boundedTenants(most), func(t *testing.T, w *world) {
		c := &boundedClient{world: w, client: w.newClient()}
		c.fill(most)
		for n := 1; n < left; n++ {
			if n == waits {
				continue
			}
			if err := w.tasks.DeleteTask("default", fmt.Sprintf("%06d", n)); err != nil {
				t.Fatal(err)
			}
		}
		w.serve(asynq.Config{Concurrency: 4})
		w.until("the deleted tasks have left", 70*time.Second, c.has(most-left))
		c.fill(left)
		w.checked(2) // the first task, and the one that was behind deleted ones
	})
}
