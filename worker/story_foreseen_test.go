package worker_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/explain"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestForeseenStartsComeTrue: when each task in line is expected to start, as the answer on it
// says, is when it starts; and the answer names the limit that binds it.
func TestForeseenStartsComeTrue(t *testing.T) {
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
			e, err := explain.Job(t.Context(), w.throttle.Inspector(), w.client, id)
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
		if len(foreseen) < 50 || missed > len(foreseen)/20 || binds["tenant"] < 20 {
			t.Error("the answers did not come true")
		}
	})
}

// TestRetriesOf: the Inspector's counts, without the spare retries of NewTask.
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
