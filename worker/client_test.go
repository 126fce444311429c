package worker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// newClient returns a Client that plans tasks as another process would.
func (w *world) newClient() *worker.Client {
	w.t.Helper()
	c, err := worker.NewClient(w.throttle, w.client, jobOf, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// mails returns tasks of 8 tenants, or of the named tenants, in turn.
func mails(n int, weight func(n int) int64, tenants ...string) []*asynq.Task {
	tasks := make([]*asynq.Task, n)
	for i := range tasks {
		tenant := fmt.Sprintf("t%d", i%8)
		if len(tenants) > 0 {
			tenant = tenants[i%len(tenants)]
		}
		id := fmt.Sprintf("%s-%06d", tenant, i)
		tasks[i] = worker.NewTask("mail", nil, headers(tenant, weight(i)), asynq.TaskID(id))
	}
	return tasks
}

func light(int) int64 { return 1 }

// TestDrainPlanned is TestDrain with tasks that are planned instead of waiting: they
// are not put back when they come.
func TestDrainPlanned(t *testing.T) {
	t.Parallel()
	tasks := 2000 / share
	if longtest.Watched {
		tasks = 400
	}
	inBubble(t, drainQuotas(2*time.Second, throttle.Exact), func(t *testing.T, w *world) {
		server := w.serve(asynq.Config{Concurrency: 16})
		plan, err := w.newClient().EnqueueAll(t.Context(), mails(tasks, light))
		if err != nil || len(plan.Tasks) != tasks {
			t.Fatal(len(plan.Tasks), err)
		}
		w.drained(tasks, 4*time.Hour)
		w.shaper.Stop()
		server.Shutdown()
		w.checked(tasks)
		putBacks := float64(w.shaper.Stats().PutBack) / float64(tasks)
		best := optimum(w.scopes, w.starts)
		last := plan.Last.Sub(w.began)
		t.Logf("put back %.3f per job, makespan %s of %s: %.3f; planned to end after %s", putBacks, w.makespan(), best,
			float64(w.makespan())/float64(best), last)
		if putBacks > 0.05 {
			t.Errorf("put back %.3f per job, want at most 0.05", putBacks)
		}
		if off := (w.makespan() - last).Abs(); off > max(time.Second, last/50) {
			t.Errorf("the last starts after %s, it was to be %s", w.makespan(), last)
		}
	})
}

// TestPlannedTasksComeToTheirSlots: tasks that were planned for slots within the lookahead are
// woken for these slots by a process that serves, which learns of the tasks half a second later at
// most, and none is put back. asynq by itself would bring them a second or more later.
func TestPlannedTasksComeToTheirSlots(t *testing.T) {
	t.Parallel()
	inBubble(t,
		[]throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Per(25, 250*time.Millisecond)}}},
		func(t *testing.T, w *world) {
			w.serve(asynq.Config{Concurrency: 64})
			time.Sleep(3 * time.Second)
			plan, err := w.newClient().EnqueueAll(t.Context(), mails(125, light, "acme"))
			if err != nil {
				t.Fatal(err)
			}
			w.drained(125, time.Minute)
			late := time.Duration(0)
			for _, task := range plan.Tasks {
				if task.Reservation.Outcome != throttle.Booked {
					t.Fatalf("%s for %s", task.Info.ID, task.Reservation.Outcome)
				}
				late = max(late, w.began.Add(w.startOf(task.Info.ID)).Sub(task.Start))
			}
			if putBack := w.shaper.Stats().PutBack; late > 600*time.Millisecond || putBack > 0 {
				t.Errorf("up to %s late, %d put back; want 0.6s at most, and none", late, putBack)
			}
			w.withinLimits()
		})
}

// TestForecast: forecasts come true, to 2 % of the wait or a second, for jobs of several
// tenants behind others in line, of different weights and shares, with a paused tenant.
func TestForecast(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	window := func(units int64, length time.Duration) []throttle.Limit {
		return []throttle.Limit{throttle.Per(units, length)}
	}
	rows := []struct {
		name    string
		scopes  []throttle.Scope
		options throttle.Options
		before  []string // tenants of the tasks that are in line already
		after   []string // of those that are forecast
		weight  func(n int) int64
		pause   time.Duration // of the first tenant
	}{
		{name: "one tenant", before: []string{"a"}, after: []string{"a"}, weight: light,
			scopes: []throttle.Scope{{Name: throttle.Global, Limits: window(600, time.Minute)},
				{Name: "tenant", Limits: window(60, 10*time.Second)}}},
		{name: "a newcomer", before: []string{"a", "a", "a", "b"}, after: []string{"c", "b"}, weight: light,
			scopes: []throttle.Scope{{Name: throttle.Global, Limits: window(100, 10*time.Second)},
				{Name: "tenant", Limits: window(60, 10*time.Second)}}},
		{name: "shares", before: []string{"a", "b"}, after: []string{"a", "b", "c"}, weight: light,
			options: throttle.Options{Shares: map[string]int{"a": 3}},
			scopes: []throttle.Scope{{Name: throttle.Global, Limits: window(100, 10*time.Second)},
				{Name: "tenant", Limits: window(80, 10*time.Second)}}},
		{name: "weights", before: []string{"a", "b"}, after: []string{"a", "b"},
			weight: func(n int) int64 { return 1 + int64(n%10)/9*4 },
			scopes: []throttle.Scope{{Name: throttle.Global, Limits: window(90, 10*time.Second)},
				{Name: "tenant", Limits: window(60, 10*time.Second)}}},
		{name: "a pause", before: []string{"a", "b"}, after: []string{"a", "b"}, weight: light, pause: 40 * time.Second,
			scopes: []throttle.Scope{{Name: throttle.Global, Limits: window(100, 10*time.Second)},
				{Name: "tenant", Limits: window(60, 10*time.Second)}}},
		{name: "exact, two windows", before: []string{"a", "b"}, after: []string{"b", "a"}, weight: light,
			scopes: []throttle.Scope{{Name: throttle.Global, Limits: window(50, 5*time.Second)},
				{Name: "tenant", Limits: []throttle.Limit{throttle.Per(20, 2*time.Second), throttle.Per(80, 20*time.Second)}}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubbleWith(t, row.scopes, &row.options, func(t *testing.T, w *world) {
				ctx := t.Context()
				if row.pause > 0 {
					if _, err := inspect.New(w.throttle).Pause(ctx, "tenant", row.before[0], time.Now().Add(row.pause)); err != nil {
						t.Fatal(err)
					}
				}
				client := w.newClient()
				server := w.serve(asynq.Config{Concurrency: 64})
				each := longtest.Of(100, 300)
				if _, err := client.EnqueueAll(ctx, mails(each, row.weight, row.before...)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(700 * time.Millisecond)
				jobs, tasks := make([]throttle.Job, each), make([]*asynq.Task, each)
				for i := range jobs {
					tenant, weight := row.after[i%len(row.after)], row.weight(i)
					jobs[i] = throttle.Job{Weight: weight, Keys: map[string]string{"tenant": tenant}}
					tasks[i] = worker.NewTask("mail", nil, headers(tenant, weight), asynq.TaskID(fmt.Sprintf("new-%06d", i)))
				}
				forecast, err := inspect.New(w.throttle).Forecast(ctx, jobs)
				if err != nil {
					t.Fatal(err)
				}
				plan, err := client.EnqueueAll(ctx, tasks)
				if err != nil {
					t.Fatal(err)
				}
				w.drained(2*each, time.Hour)
				w.shaper.Stop()
				server.Shutdown()
				var worst, worstPlanned time.Duration
				for i := range tasks {
					actual := w.began.Add(w.startOf(fmt.Sprintf("new-%06d", i)))
					allowed := max(time.Second, actual.Sub(forecast.Now)/50)
					off, planned := actual.Sub(forecast.Starts[i]).Abs(), actual.Sub(plan.Tasks[i].Start).Abs()
					if off > allowed || planned > allowed {
						t.Errorf("job %d starts %s after the forecast, which said %s; its plan said %s", i,
							actual.Sub(forecast.Now), forecast.Starts[i].Sub(forecast.Now), plan.Tasks[i].Start.Sub(forecast.Now))
					}
					worst, worstPlanned = max(worst, off), max(worstPlanned, planned)
				}
				t.Logf("off by %s at most, the plan by %s, of %s", worst, worstPlanned, forecast.Last.Sub(forecast.Now))
			})
		})
	}
}

// TestPlannedAgainWhileItRuns: a task that is planned once more while it runs is refused. Its second
// reservation is free when the task has completed, even if asynq keeps the task.
func TestPlannedAgainWhileItRuns(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.Running(1)}}, {Name: "tenant"}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		w.handle = 2 * time.Second
		w.serve(asynq.Config{Concurrency: 8})
		client := w.newClient()
		plan := func() error {
			_, err := client.Enqueue(t.Context(),
				worker.NewTask("mail", nil, headers("acme", 1), asynq.TaskID("sync"), asynq.Retention(time.Hour)))
			return err
		}
		if err := plan(); err != nil {
			t.Fatal(err)
		}
		w.until("it runs", 5*time.Second, func() bool { return w.ran("sync") == 1 })
		if err := plan(); !errors.Is(err, asynq.ErrTaskIDConflict) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		w.enqueue(1, "other", 1)
		w.until("the other runs", time.Minute, func() bool { return w.ran("000001") == 1 })
		if idle := w.startOf("000001") - w.startOf("sync") - w.handle; idle > time.Second {
			t.Errorf("the place was idle for %s", idle)
		}
	})
}
