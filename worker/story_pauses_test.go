package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// paused is a time during which no start to a domain is granted.
type paused struct {
	domain   string
	from, to time.Time
}

// clockStep is how inexact an instant by Redis' clock is: a microsecond for now, and one for
// the length of a pause.
const clockStep = 2 * time.Microsecond

// grants is the handlers' own log.
type grants struct {
	mu     sync.Mutex
	kept   []throttle.Reservation // of handlers that succeeded
	pauses []paused
}

// check fails the test for each grant on a paused domain, each window over its limit
// and each task that succeeded twice.
func (g *grants) check(w *world) {
	w.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	starts := make([]throttletest.Start, len(g.kept))
	done := make(map[string]bool)
	for i, grant := range g.kept {
		starts[i] = throttletest.Start{At: grant.Start, Weight: grant.Job.Weight, Keys: grant.Job.Keys}
		if done[grant.Job.ID] {
			w.t.Errorf("job %s ran twice", grant.Job.ID)
		}
		done[grant.Job.ID] = true
		for _, p := range g.pauses {
			if grant.Job.Keys["domain"] == p.domain && grant.Now.After(p.from) && grant.Start.Before(p.to.Add(-clockStep)) {
				w.t.Errorf("job %s was granted at %s a start at %s, in the pause from %s to %s", grant.Job.ID,
					grant.Now.Sub(w.began), grant.Start.Sub(w.began), p.from.Sub(w.began), p.to.Sub(w.began))
			}
		}
	}
	for _, over := range throttletest.Check(w.scopes, starts) {
		w.t.Errorf("window over its limit: %s", over)
	}
}

const pauseWindow = 10 * time.Second

// TestDrainWithPauses drains 3 tenants' mails to 3 domains, one of which is paused in
// the middle, twice: by an operator, who resumes it, and by its own upstream, which
// asks to wait until it is open again. The pauses delay no mail to the other domains.
func TestDrainWithPauses(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	limit := func(units int64) throttle.Limit { return throttle.Per(units, pauseWindow) }
	const allShare = 40
	rows := []struct {
		name   string
		scopes []throttle.Scope
		tasks  int
		apart  bool // the domains do not share what is scarce: one's pause gives others no room
	}{
		{"each domain is full", domains(limit(60), limit(25), limit(12)), 600, true},
		{"all share what is scarce", domains(limit(allShare), limit(25), limit(20)), 240, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.tasks = longtest.Of(min(row.tasks, 400), row.tasks) // fewer, and the pauses are most of it
			without := drainWithPauses(t, row.scopes, row.tasks, false)
			with := drainWithPauses(t, row.scopes, row.tasks, true)
			if t.Failed() {
				return
			}
			last := func(starts []time.Duration) time.Duration { return starts[len(starts)-1] }
			if !row.apart {
				// Who gets the room that all share goes by the order in which the jobs have come, which
				// differs from run to run. While one domain is paused the others have all of it.
				others := slices.Concat(with["d1"], with["d2"])
				used := 0
				for _, start := range others {
					if start >= 2*pauseWindow && start < 4*pauseWindow {
						used++
					}
				}
				if want := 2 * allShare; used != want {
					t.Errorf("%d jobs to the others start in two windows while d0 is paused, want %d", used, want)
				}
				most := max(last(without["d0"]), last(without["d1"]), last(without["d2"])) + time.Second
				if got := slices.Max(others); got > most {
					t.Errorf("the last job to the others starts after %s, want at most %s", got, most)
				}
			}
			for _, domain := range []string{"d1", "d2"} {
				if !row.apart {
					break
				}
				var late time.Duration
				for n, start := range with[domain] {
					late = max(late, start-without[domain][n])
				}
				t.Logf("%s: a job starts at most %s later than without pauses", domain, late)
				if late > time.Second {
					t.Errorf("a job to %s starts up to %s later than without pauses, want at most 1s", domain, late)
				}
				early := last(without[domain]) - last(with[domain])
				if most := max(time.Second, last(without[domain])/20); early > most {
					t.Errorf("the last job to %s starts %s earlier than without pauses, want at most %s", domain, early, most)
				}
			}
			if last(with["d0"]) <= last(without["d0"]) {
				t.Errorf("the last job to the paused domain starts after %s, without pauses after %s",
					last(with["d0"]), last(without["d0"]))
			}
		})
	}
}

// drainWithPauses returns when the jobs to each domain have started, in order.
func drainWithPauses(t *testing.T, scopes []throttle.Scope, tasks int, pauses bool) map[string][]time.Duration {
	starts := make(map[string][]time.Duration)
	inDomains(t, scopes, func(t *testing.T, w *world) {
		for n := range tasks {
			w.mail(n, fmt.Sprintf("t%d", n%3), fmt.Sprintf("d%d", n/3%3))
		}
		w.began = time.Now()
		up := &closing{w: w}
		w.result = up.handle
		w.serve(asynq.Config{Concurrency: 32})
		if pauses {
			up.disturb()
		}
		w.drained(tasks, time.Hour)
		up.check(w)
		w.archived(0)
		if len(up.kept) != tasks {
			t.Errorf("%d tasks succeeded, want each of %d once", len(up.kept), tasks)
		}
		for _, grant := range up.kept {
			domain := grant.Job.Keys["domain"]
			starts[domain] = append(starts[domain], grant.Start.Sub(w.began))
		}
		last := make(map[string]time.Duration)
		for domain, of := range starts {
			slices.Sort(of)
			last[domain] = of[len(of)-1]
		}
		putBacks := float64(w.shaper.Stats().PutBack) / float64(tasks)
		t.Logf("pauses %t: put back %.3f per job, asked to wait %d times, the last starts %v", pauses, putBacks,
			up.asked, last)
		if most := longtest.Of(1.25, 1.1); putBacks > most {
			t.Errorf("put back %.3f per job, want at most %v", putBacks, most)
		}
		if pauses && up.asked == 0 {
			t.Error("no handler was asked to wait")
		}
	})
	return starts
}

// closing is the upstream that handlers call. Its domain d0 is closed for a time, in which it
// asks to wait until it opens.
type closing struct {
	grants
	w     *world
	opens time.Time
	asked int
}

func (u *closing) handle(ctx context.Context, _ *asynq.Task) error {
	grant, _ := worker.Grant(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if rest := time.Until(u.opens); grant.Job.Keys["domain"] == "d0" && rest > 0 {
		if u.asked == 0 {
			u.pauses = append(u.pauses, paused{"d0", time.Now().Add(time.Millisecond), u.opens})
		}
		u.asked++
		return worker.AskedToWait("domain", rest, nil)
	}
	u.kept = append(u.kept, grant)
	return nil
}

// disturb pauses d0 by hand for 45 s and resumes it after 30, then closes it for 40 s.
func (u *closing) disturb() {
	t, w := u.w.t, u.w
	time.Sleep(10 * time.Second)
	ends, err := inspect.New(w.throttle).Pause(t.Context(), "domain", "d0", time.Now().Add(45*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	u.note(paused{"d0", time.Now(), ends})
	time.Sleep(30 * time.Second)
	if was, err := inspect.New(w.throttle).Resume(t.Context(), "domain", "d0"); err != nil || !was {
		t.Fatalf("resumed %t, %v", was, err)
	}
	resumed := time.Now()
	u.mu.Lock()
	u.pauses[0].to = resumed
	u.mu.Unlock()
	// Where others have used what all share, only the next window has room.
	w.until("the resumed domain goes on", 12*time.Second, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return slices.ContainsFunc(u.kept, func(grant throttle.Reservation) bool {
			return grant.Job.Keys["domain"] == "d0" && grant.Start.After(resumed)
		})
	})
	t.Logf("the resumed domain goes on after %s", time.Since(resumed))
	time.Sleep(5 * time.Second)
	u.mu.Lock()
	u.opens = time.Now().Add(40 * time.Second)
	u.mu.Unlock()
}

func (u *closing) note(p paused) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pauses = append(u.pauses, p)
}

// TestPausedTaskThatGoesOn: a pending task of a paused queue leaves the line. If the queue goes on
// meanwhile and the task completes, the task does not run again, though asynq keeps it.
func TestPausedTaskThatGoesOn(t *testing.T) {
	t.Parallel()
	scopes := perTenant(1, 10*time.Second)
	inBubble(t, scopes, func(t *testing.T, w *world) {
		wire := newWire(w)
		th, err := throttle.New("world", wire.client, scopes, nil)
		if err != nil {
			t.Fatal(err)
		}
		shaper, err := worker.New(th, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(shaper.Stop)
		w.serveWith(shaper, asynq.Config{Concurrency: 8})
		w.enqueue(0, "acme", 1)
		w.until("the first has run", time.Second, func() bool { return w.ran("000000") == 1 })
		w.enqueue(1, "acme", 1, asynq.Retention(time.Hour))
		w.until("the second is put back", time.Second, w.in("000001", asynq.TaskStateRetry))
		for _, err := range []error{w.tasks.PauseQueue("default"), w.tasks.RunTask("default", "000001")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		var slow atomic.Bool // what gives its place back
		wire.before(func(cmd redis.Cmder) {
			if strings.Contains(fmt.Sprintf("%s", cmd.Args()), "000001") && slow.CompareAndSwap(false, true) {
				if err := w.tasks.UnpauseQueue("default"); err != nil {
					t.Error(err)
				}
				time.Sleep(1500 * time.Millisecond)
			}
		})
		time.Sleep(2 * time.Minute)
		if n := w.ran("000001"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
}
