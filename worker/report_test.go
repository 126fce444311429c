package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// provider is an upstream that serves up to a number of units in every window, by its own record,
// and refuses the rest.
type provider struct {
	window time.Duration
	serves func(at time.Time) int64

	mu      sync.Mutex
	served  []request
	refused []time.Time
}

type request struct {
	at    time.Time
	units int64
}

// asked serves or refuses a request, and returns the provider's limit and what is left of it.
func (u *provider) asked(units int64) (served bool, limit, remaining int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	limit = u.serves(now)
	used := u.used(now.Add(-u.window), now)
	if served = used+units <= limit; served {
		u.served = append(u.served, request{now, units})
		used += units
	} else {
		u.refused = append(u.refused, now)
	}
	return served, limit, max(0, limit-used)
}

// used returns how many units the provider served between two instants.
func (u *provider) used(after, until time.Time) (units int64) {
	for _, r := range u.served {
		if r.at.After(after) && !r.at.After(until) {
			units += r.units
		}
	}
	return units
}

func (u *provider) refusedIn(after, until time.Time) (refused int) {
	for _, at := range u.refused {
		if at.After(after) && !at.After(until) {
			refused++
		}
	}
	return refused
}

// utilisation returns the used part of what the provider could have served.
func (u *provider) utilisation(after, until time.Time) float64 {
	windows := float64(until.Sub(after)) / float64(u.window)
	return float64(u.used(after, until)) / (windows * float64(u.serves(until)))
}

// asksOf returns the part of a handler that asks the upstream and reports its answer.
func (u *provider) asksOf(w *world, tells bool) func(ctx context.Context, task *asynq.Task) error {
	return func(ctx context.Context, _ *asynq.Task) error {
		grant, _ := worker.Grant(ctx)
		served, limit, remaining := u.asked(grant.Job.Weight)
		said := throttle.Report{Refused: !served}
		if tells {
			said.Limits = []throttle.ReportedLimit{{Units: limit, Remaining: remaining}}
		}
		if served || tells {
			if _, err := worker.Report(ctx, throttle.Global, said); err != nil {
				w.t.Error(err)
			}
		}
		if !served {
			return worker.AskedToWait(throttle.Global, 0, errors.New("429"))
		}
		return nil
	}
}

// TestReportFollowsAnIncident: an upstream serves 60 % of the limit for a while and then all of
// it again. Two windows after each change it refuses next to nothing, and nearly all that it
// serves is used; no task loses a retry.
func TestReportFollowsAnIncident(t *testing.T) {
	t.Parallel()
	const window, units = 10 * time.Second, 1000
	for _, row := range []struct {
		name    string
		tells   bool
		refused float64 // at most, of what is asked two windows after a change
		used    float64 // at least, of what is served then
	}{
		{"headers tell what is served", true, 0.01, longtest.Of(0.87, 0.95)},
		{"it only refuses", false, 0.10, 0.65},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			scopes := []throttle.Scope{
				{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(units, window)}, Floor: 0.1},
				{Name: "tenant"},
			}
			inBubble(t, scopes, func(t *testing.T, w *world) {
				incident, recovery, end := w.began.Add(6*window), w.began.Add(18*window), w.began.Add(30*window)
				u := &provider{window: window, serves: func(at time.Time) int64 {
					if at.After(incident) && !at.After(recovery) {
						return units * 6 / 10
					}
					return units
				}}
				w.result = u.asksOf(w, row.tells)
				for n := range 30 * units / 50 {
					w.enqueue(n, "a", []int64{20, 50, 80}[n%3], asynq.MaxRetry(1))
				}
				w.serve(asynq.Config{Concurrency: 16})
				w.until("the end of it", time.Hour, func() bool { return time.Now().After(end) })
				u.mu.Lock()
				defer u.mu.Unlock()
				if n := u.refusedIn(w.began, incident); n > 0 {
					t.Errorf("%d refused before the incident, want none", n)
				}
				for name, span := range map[string][2]time.Time{
					"before":   {w.began, incident},
					"incident": {incident.Add(2 * window), recovery},
					"recovery": {recovery.Add(5 * window), end},
				} {
					asked := 0
					for _, r := range u.served {
						if r.at.After(span[0]) && !r.at.After(span[1]) {
							asked++
						}
					}
					refused := u.refusedIn(span[0], span[1])
					part, used := float64(refused)/float64(asked+refused), u.utilisation(span[0], span[1])
					t.Logf("%s: %d asked, %.4f refused, %.3f used", name, asked+refused, part, used)
					if part > row.refused || used < row.used {
						t.Errorf("%s: %.4f refused, %.3f used, want at most %.2f and at least %.2f", name, part,
							used, row.refused, row.used)
					}
				}
				retried, err := w.tasks.ListRetryTasks("default", asynq.PageSize(5000))
				if err != nil {
					t.Fatal(err)
				}
				for _, task := range retried {
					if task.Retried > 0 {
						t.Errorf("task %s has lost %d retries", task.ID, task.Retried)
					}
				}
			})
		})
	}
}
