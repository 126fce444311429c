package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/explain"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestForeseenStartsComeTrue: each task in line starts when its answer expects it to, and the answer
// names the limit that binds it.
func TestForeseenStartsComeTrue(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(3)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(30)}},
	}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		tenants := make(map[string]string)
		for i := range 150 {
			tenant := "acme"
			if i%5 > 2 {
				tenant = string(rune('a' + i%25))
			}
			tenants[w.enqueue(i, tenant, 1)] = tenant
		}
		w.serve(asynq.Config{Concurrency: 16})
		time.Sleep(20 * time.Second)
		foreseen := make(map[string]explain.Explanation)
		for id := range tenants {
			e, err := explain.Job(t.Context(), inspect.New(w.throttle), w.client, id)
			if err != nil {
				t.Fatal(err)
			}
			if e.State == explain.Waiting {
				foreseen[id] = e
			}
		}
		w.drained(len(tenants), time.Hour)
		missed, worst, binds := 0, time.Duration(0), make(map[string]int)
		for id, e := range foreseen {
			off := w.began.Add(w.waits[id]).Sub(e.Expected).Abs()
			worst = max(worst, off)
			if off > time.Second+e.Expected.Sub(e.Now)/50 {
				missed++
			}
			if e.Binds == nil {
				t.Errorf("task %s of %s: %q names no limit", id, tenants[id], e.Why)
				continue
			}
			binds[e.Binds.Scope]++
			if tenants[id] != "acme" && e.Binds.Scope == "tenant" {
				t.Errorf("task %s of %s, which has few, is said to wait for its own limit: %q", id, tenants[id], e.Why)
			}
		}
		t.Logf("%d tasks in line, %d started otherwise than foreseen, the worst by %s; bound by %v", len(foreseen),
			missed, worst, binds)
		if len(foreseen) < 50 || missed > 0 || binds["tenant"] < 20 {
			t.Error("the answers did not come true")
		}
	})
}

// TestForeseenStartsOfTokensComeTrue: the same for tasks that take a request and many tokens, some of
// which go first. The answer names the tokens, although fewer requests fit than tasks are in line.
func TestForeseenStartsOfTokensComeTrue(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(60)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(40_000)}},
	}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		w.shaper = w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			job, err := jobWithPriority(ctx, task)
			job.Weight, job.Costs = 1, map[string]int64{"tenant": job.Weight}
			return job, err
		}, nil)
		const tasks = 120
		ids := make([]string, tasks)
		for i := range ids {
			ids[i] = fmt.Sprintf("%06d", i)
			w.send(withPriority(ids[i], 1000+int64(i%3)*500, min(2, i%5)))
		}
		w.serve(asynq.Config{Concurrency: 16})
		time.Sleep(20 * time.Second)
		foreseen := make(map[string]explain.Explanation)
		for _, id := range ids {
			e, err := explain.Job(t.Context(), inspect.New(w.throttle), w.client, id)
			if err != nil {
				t.Fatal(err)
			}
			if e.State != explain.Waiting {
				continue
			}
			foreseen[id] = e
			if e.Binds == nil || e.Binds.Scope != "tenant" || strings.Contains(e.Why+e.Help, "global") {
				t.Errorf("task %s: %q, %q", id, e.Why, e.Help)
			}
		}
		w.drained(tasks, time.Hour)
		missed, worst := 0, time.Duration(0)
		for id, e := range foreseen {
			off := w.began.Add(w.waits[id]).Sub(e.Expected).Abs()
			worst = max(worst, off)
			if off > time.Second+e.Expected.Sub(e.Now)/50 {
				missed++
			}
		}
		t.Logf("%d tasks in line, %d started otherwise than foreseen, the worst by %s", len(foreseen), missed, worst)
		if len(foreseen) < 50 || missed > 0 {
			t.Error("the answers did not come true")
		}
	})
}

// TestRetriesOf: RetriesOf returns the Inspector's counts, without the spare retries of NewTask.
func TestRetriesOf(t *testing.T) {
	t.Parallel()
	inBubble(t, []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(3)}}},
		func(t *testing.T, w *world) {
			for n, c := range []struct {
				task *asynq.Task
				want int
			}{{worker.NewTask("mail", nil, nil, asynq.MaxRetry(3)), 3}, {worker.NewTask("mail", nil, nil), 25},
				{asynq.NewTask("mail", nil, asynq.MaxRetry(3)), 3}, {asynq.NewTask("mail", nil), 25}} {
				id := string(rune('a' + n))
				w.send(c.task, asynq.TaskID(id))
				info, err := w.tasks.GetTaskInfo("default", id)
				if err != nil {
					t.Fatal(err)
				}
				if retried, most := worker.RetriesOf(info); retried != 0 || most != c.want {
					t.Errorf("%d: retried %d of %d, want 0 of %d", n, retried, most, c.want)
				}
			}
		})
}
