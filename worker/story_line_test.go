package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestFullDomainHoldsNobodyUp sends 30 % of the jobs to one of five domains. Each domain takes
// 60 jobs a minute, so this domain is full long after the others are done. The jobs
// of each other domain end when they would end without the full domain. If the global limit binds
// as well, the other jobs together end no later than if the global limit were lower by the units
// that the full domain may take; they end earlier if the full domain takes less. Which of the other domains
// ends first then depends on the order in which the jobs came, which differs from run to run.
func TestFullDomainHoldsNobodyUp(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for name, row := range map[string]struct {
		jobs                 int
		with, without, early int64
		earliest             float64
	}{
		"with room for all":        {1000, 1200, 1200, 240, longtest.Of(0.85, 0.95)},
		"with all at their limits": {500, 200, 140, 140, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, without := perDomain(t, row.jobs, row.with, row.early, true),
				perDomain(t, row.jobs, row.without, row.early, false)
			if len(with) != 5 {
				t.Fatalf("jobs to %d other domains, want 4", len(with)-1)
			}
			for domain, ends := range with {
				if (domain == together) != (row.earliest == 0) {
					continue
				}
				for i, what := range []string{"p50", "p90", "last"} {
					ratio := float64(ends[i]) / float64(without[domain][i])
					t.Logf("%s %s after %s, without the full domain %s: %.3f", domain, what, ends[i], without[domain][i], ratio)
					if most := longtest.Of(1.15, 1.05); ratio > most || ratio < row.earliest {
						t.Errorf("%s: %s is %.3f of what it would be, want %.2f to %v", domain, what, ratio, row.earliest, most)
					}
				}
			}
		})
	}
}

// together is the name under which all domains but the full one are counted together.
const together = "all others"

// perDomain returns the p50, p90 and last start of the jobs of each domain but the full one, and
// of all these jobs together. Its argument all is the global limit, in units a minute. In the first minute jobs
// come evenly: as many as others says for the other domains, and 60 for the full one. Then all the rest come at once.
func perDomain(t *testing.T, jobs int, all, others int64, withFull bool) map[string][3]time.Duration {
	t.Helper()
	half := longtest.Of[int64](2, 1) // by default, half of all jobs and limits
	jobs, all, others = jobs/int(half), all/half, others/half
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(all)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(600 / half)}},
		{Name: "domain", Limits: []throttle.Limit{throttle.PerMinute(60 / half)}},
	}
	starts := make(map[string][]time.Duration)
	inBubble(t, scopes, func(t *testing.T, w *world) {
		w.handle = time.Millisecond
		s := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			job, err := jobOf(ctx, task)
			job.Keys["domain"] = task.Headers()["domain"]
			return job, err
		}, nil)
		w.began = time.Now()
		w.serveWith(s, asynq.Config{Concurrency: 32})
		type arrival struct {
			at   time.Duration
			task *asynq.Task
		}
		var arrivals []arrival
		early := make(map[bool]int64) // how many jobs of the full domain (true) and of the others have been drawn
		for n := range jobs {
			full := n%10 < 3
			if full && !withFull {
				continue
			}
			domain, rate := fmt.Sprintf("d%d", n%7%4), others // three of the four get a few more jobs
			if full {
				domain, rate = "full", 60/half
			}
			h := headers(fmt.Sprintf("t%d", n%3), 1)
			h["domain"] = domain
			task := worker.NewTask("mail", nil, h, asynq.TaskID(fmt.Sprintf("%06d", n)))
			at := min(time.Minute, time.Duration(early[full])*time.Minute/time.Duration(rate))
			early[full]++
			arrivals = append(arrivals, arrival{at, task})
		}
		slices.SortStableFunc(arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
		for _, a := range arrivals {
			time.Sleep(time.Until(w.began.Add(a.at)))
			w.send(a.task)
		}
		w.drained(len(arrivals), time.Hour)
		w.checked(len(arrivals))
		for _, start := range w.starts {
			if domain := start.Keys["domain"]; domain != "full" {
				starts[domain] = append(starts[domain], start.At.Sub(w.began))
			}
		}
	})
	for _, at := range maps.Clone(starts) {
		starts[together] = append(starts[together], at...)
	}
	ends := make(map[string][3]time.Duration)
	for domain, at := range starts {
		ends[domain] = [3]time.Duration{percentile(at, 0.5), percentile(at, 0.9), percentile(at, 1)}
	}
	return ends
}

// TestFewJobsBesideAFlood lets one tenant send a job a second, first alone, then while another
// has flooded the line before it. TestF57_QuietTenantBesideAFlood has a larger flood.
func TestFewJobsBesideAFlood(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const window = 20 * time.Second
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{{Units: 200, Window: window, Precision: throttle.Exact}}},
		{Name: "tenant"},
	}
	quiet := func(flood int) (waits []time.Duration) {
		inBubble(t, scopes, func(t *testing.T, w *world) {
			w.handle = time.Millisecond
			for n := range flood {
				w.enqueue(n, "flood", 1)
			}
			w.began = time.Now()
			w.serve(asynq.Config{Concurrency: 32})
			w.until("the flood stands in line", time.Minute, func() bool { return w.shaper.Stats().PutBack >= int64(flood)-200 })
			sent := make(map[string]time.Duration)
			for n := range longtest.Of(60, 120) {
				time.Sleep(time.Second)
				sent[w.enqueue(flood+n, "quiet", 1)] = time.Since(w.began)
			}
			time.Sleep(2 * window)
			for id, at := range sent {
				if w.ran(id) == 0 {
					t.Fatalf("job %s of the quiet tenant did not start", id)
				}
				waits = append(waits, w.startOf(id)-at)
			}
			w.withinLimits()
		})
		return waits
	}
	flood := longtest.Of(1000, 2000) // enough jobs to outlast this test
	alone, beside := quiet(0), quiet(flood)
	t.Logf("waits of the quiet tenant: alone p50 %s p99 %s, beside the flood p50 %s p99 %s",
		percentile(alone, 0.5), percentile(alone, 0.99), percentile(beside, 0.5), percentile(beside, 0.99))
	if got, most := percentile(beside, 0.99), percentile(alone, 0.99)+window+time.Second; got > most {
		t.Errorf("the p99 wait of the quiet tenant is %s, want at most %s: a window and a second more than alone", got, most)
	}
}

// TestKilledProcess ends one of two processes in the middle of its work, as kill -9 does; the wake-ups that it
// planned are lost. asynq recovers the tasks that the process was running; the other process wakes the rest in time.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(20, time.Second), func(t *testing.T, w *world) {
		const tasks = 400
		dying := newWire(w)
		th, err := throttle.New("world", dying.client, w.scopes, &throttle.Options{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		victim, err := worker.New(th, dying.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(victim.Stop)
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.began = time.Now()
		w.start(dying.client, victim.Configure(asynq.Config{Concurrency: 8}), victim.Wrap(asynq.HandlerFunc(w.process)))
		w.until("the tasks are put back", time.Minute, func() bool { return victim.Stats().PutBack >= tasks-20 })
		w.serve(asynq.Config{Concurrency: 8})
		time.Sleep(4*time.Second + 300*time.Millisecond)
		dying.cut()
		killed := time.Since(w.began)
		running, err := w.tasks.ListActiveTasks("default")
		if err != nil {
			t.Fatal(err)
		}
		best := optimum(w.scopes,
			slices.Repeat([]throttletest.Start{{Weight: 1, Keys: map[string]string{"tenant": "acme"}}}, tasks))
		w.drained(tasks-len(running), best+30*time.Second)
		took := time.Since(w.began)
		t.Logf("killed after %s with %d tasks running; the others drained after %s, at best %s", killed,
			len(running), took, best)
		if more := longtest.Of(4*time.Second, 2*time.Second); took > best+more {
			t.Errorf("drained after %s, want at most %s more than %s", took, more, best)
		}
		w.withinLimits()
	})
}

// booked lists the tasks that have a slot according to the throttle's state in Redis.
func (w *world) booked() []string {
	w.t.Helper()
	jobs, err := w.client.HGetAll(w.t.Context(), "thr:{world}:4:jobs").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var ids []string
	for id, record := range jobs {
		if !strings.HasPrefix(record, "-") && !strings.HasPrefix(record, "0 ") {
			ids = append(ids, strings.TrimSuffix(strings.TrimPrefix(id, "asynq:default/"), "/0"))
		}
	}
	slices.Sort(ids)
	return ids
}

// inLine returns the IDs of a tenant's jobs that stand in line.
func (w *world) inLine(tenant string) []string {
	w.t.Helper()
	lanes, err := w.client.Keys(w.t.Context(), "thr:{world}:4:lane:"+tenant+"|*").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var ids []string
	for _, lane := range lanes {
		_, lane, _ = strings.Cut(lane, ":4:lane:")
		for from, more := "", true; more; more = from != "" {
			var jobs []throttle.Reservation
			if jobs, from, err = inspect.New(w.throttle).Jobs(w.t.Context(), lane, from); err != nil {
				w.t.Fatal(err)
			}
			for _, r := range jobs {
				ids = append(ids, r.Job.ID)
			}
		}
	}
	return ids
}

// TestBookedTasksDeleted deletes all booked tasks of a tenant at once, then nearly
// all that stand in line behind them: the rest goes on.
func TestBookedTasksDeleted(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, perTenant(5, 2*time.Second), func(t *testing.T, w *world) {
		const tasks, left = 800, 20
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.serve(asynq.Config{Concurrency: 8})
		w.until("the tasks are put back", time.Minute, func() bool { return w.shaper.Stats().PutBack >= tasks-5 })
		time.Sleep(1500 * time.Millisecond)
		deleted := w.booked()
		if len(deleted) == 0 {
			t.Fatal("no task is booked")
		}
		before := len(w.ended)
		for _, id := range deleted {
			if err := w.tasks.DeleteTask("default", id); err != nil {
				t.Fatal(err)
			}
		}
		at := time.Now()
		w.drained(before+1, grace+2*time.Second)
		t.Logf("%d booked tasks deleted, the next starts %s later", len(deleted), time.Since(at))
		gone := make(map[string]bool)
		for n := range tasks - left {
			id := fmt.Sprintf("%06d", n)
			if info := w.task(id); info != nil && info.State != asynq.TaskStateActive &&
				w.tasks.DeleteTask("default", id) == nil {
				gone[id] = true
			}
		}
		for _, id := range deleted {
			gone[id] = true
		}
		at = time.Now()
		w.drained(tasks-len(gone), time.Minute)
		took := time.Since(at)
		t.Logf("%d more deleted, the last %d drained in %s", len(gone)-len(deleted), left, took)
		if most := time.Duration(left/5)*2*time.Second + grace + 2*time.Second; took > most {
			t.Errorf("the last %d tasks took %s, want at most %s", left, took, most)
		}
		w.withinLimits()
	})
}

// TestPausedQueue puts many tasks of one queue in line before a few of another, and pauses
// the first queue: its slots go to the second, and no task is lost.
func TestPausedQueue(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, perTenant(5, 2*time.Second), func(t *testing.T, w *world) {
		const paused, running = 300, 40
		for n := range paused {
			w.enqueue(n, "acme", 1, asynq.Queue("paused"))
		}
		w.serve(asynq.Config{Concurrency: 8, Queues: map[string]int{"paused": 1, "running": 1}})
		w.until("the tasks are put back", time.Minute, func() bool { return w.shaper.Stats().PutBack >= paused-5 })
		for n := range running {
			w.enqueue(paused+n, "acme", 1, asynq.Queue("running"))
		}
		time.Sleep(time.Second)
		if err := w.tasks.PauseQueue("paused"); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		w.until("the running queue is drained", time.Minute,
			func() bool { return w.ran(fmt.Sprintf("%06d", paused+running-1)) > 0 })
		took, best := time.Since(at), time.Duration(running/5)*2*time.Second
		t.Logf("%d tasks of the running queue took %s, at best %s", running, took, best)
		if took > best+grace+2*time.Second {
			t.Errorf("the running queue took %s, want at most a grace and 2s more than %s", took, best)
		}
		if err := w.tasks.UnpauseQueue("paused"); err != nil {
			t.Fatal(err)
		}
		w.drained(paused+running, 10*time.Minute)
		w.checked(paused + running)
	})
}
