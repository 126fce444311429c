package throttle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// meanwhile does something once before a client's call of that number.
type meanwhile struct {
	calls, at int
	do        func()
}

// DialHook implements redis.Hook.
func (m *meanwhile) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (m *meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		m.before()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (m *meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		m.before()
		return next(ctx, cmds)
	}
}

func (m *meanwhile) before() {
	if m.calls++; m.calls == m.at && m.do != nil {
		m.do()
	}
}

// reading returns a throttle between whose round trips another one of the same name can act.
func reading(t *testing.T, server *redis.Client,
	scopes []throttle.Scope) (s *scripted, other *throttle.Throttle, between *meanwhile) {
	t.Helper()
	// so that the throttle uses this very client
	client := redis.NewClient(&redis.Options{Addr: server.Options().Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	between = new(meanwhile)
	client.AddHook(between)
	s = nearly(t, client, scopes, throttle.Options{})
	other, err := throttle.New(s.throttle.Name(), server, scopes,
		&throttle.Options{Lookahead: time.Second, Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	other.SetNow(func() time.Time { return s.now() })
	return s, other, between
}

// whileItMoves expects the starts of jobs in line again and again. Each time it does something
// before another one of the calls, until it has done so before each call. The expected start of
// each job must not be before the given one.
func whileItMoves(t *testing.T, server *redis.Client, scopes []throttle.Scope,
	wait func(s *scripted) []throttle.Reservation, do func(other *throttle.Throttle), first time.Duration) {
	t.Helper()
	for at := 1; ; at++ {
		s, other, between := reading(t, server, scopes)
		answers := wait(s)
		s.throttle.AwaitPublished()
		done := false
		*between = meanwhile{at: at, do: func() { done = true; do(other) }}
		got, err := inspect.New(s.throttle).Expect(t.Context(), answers)
		if err != nil {
			t.Fatal(err)
		}
		if !done {
			t.Logf("%d calls", at-1)
			return
		}
		for i, start := range got.Starts {
			if start.Before(dawn.Add(first)) {
				t.Errorf("the line moves before call %d: job %s is expected at %s, want %s or later", at,
					answers[i].Job.ID, start.Sub(dawn), first)
				break
			}
		}
	}
}

// pulls lets the other throttle pull, which moves lanes.
func pulls(t *testing.T) func(other *throttle.Throttle) {
	t.Helper()
	return func(other *throttle.Throttle) {
		if _, err := other.Driver().Pull(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestExpectWhileLanesMove: a lane that a pull moves under another scope key while the
// line is read is not missed, whenever the pull comes.
func TestExpectWhileLanesMove(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		wait := func(s *scripted) (last []throttle.Reservation) {
			comes(t, s, 0, throttle.Job{ID: "first", Weight: 6, Costs: map[string]int64{"tenant": 1},
				Keys: of("z")}, throttle.Granted)
			for i := range 5 {
				for _, tenant := range []string{"a", "b"} {
					r := comes(t, s, 0, throttle.Job{ID: fmt.Sprint(tenant, i), Keys: of(tenant)}, throttle.Waiting)
					if i == 4 {
						last = append(last, r)
					}
				}
			}
			s.at(dawn.Add(9500 * time.Millisecond))
			return last
		}
		whileItMoves(t, server, tenantAndGlobal(throttle.Per(2, 10*time.Second), throttle.Per(6, 10*time.Second)),
			wait, pulls(t), 30*time.Second)
	})
}

// TestExpectWhileHeavyLanesMove: lanes whose first jobs are heavy, and one of which has a claim.
func TestExpectWhileHeavyLanesMove(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		scopes := append(tenantAndGlobal(throttle.Per(4, 10*time.Second), throttle.Per(100, 10*time.Second)),
			throttle.Scope{Name: "domain"})
		wait := func(s *scripted) (all []throttle.Reservation) {
			keys := func(domain string) map[string]string { return map[string]string{"tenant": "a", "domain": domain} }
			comes(t, s, 0, throttle.Job{ID: "first", Weight: 3, Keys: keys("x")}, throttle.Granted)
			for _, domain := range []string{"x", "y", "z"} {
				all = append(all, comes(t, s, 0, throttle.Job{ID: domain, Weight: 2, Keys: keys(domain)}, throttle.Waiting))
			}
			for range 3 {
				s.at(s.now().Add(time.Second))
				pulls(t)(s.throttle)
			}
			s.at(dawn.Add(9500 * time.Millisecond))
			return all[1:]
		}
		whileItMoves(t, server, scopes, wait, pulls(t), 10*time.Second)
	})
}

// TestExpectWhileALongLaneIsBooked: of a lane that takes several pages none is missed that
// a pull pushes forward onto a page that was read before.
func TestExpectWhileALongLaneIsBooked(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	wait := func(s *scripted) (waiting []throttle.Reservation) {
		comes(t, s, 0, throttle.Job{ID: "first", Weight: 50, Keys: of("a")}, throttle.Granted)
		jobs := make([]throttle.Job, 1600)
		for i := range jobs {
			jobs[i] = throttle.Job{ID: fmt.Sprint("j", i), Weight: 1, Keys: of("a")}
		}
		for i, answer := range s.throttle.ReserveAll(t.Context(), jobs) {
			if answer.Err != nil {
				t.Fatal(answer.Err)
			}
			if i >= 100 {
				waiting = append(waiting, answer.Reservation)
			}
		}
		s.at(dawn.Add(9500 * time.Millisecond))
		return waiting
	}
	whileItMoves(t, quickServer(t), tenantAndGlobal(throttle.Per(50, 10*time.Second),
		throttle.Per(100_000, 10*time.Second)), wait, pulls(t), 30*time.Second)
}
