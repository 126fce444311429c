package throttle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// sent notes what a client sends, a pipeline with the number of its commands.
type sent struct {
	mu       sync.Mutex
	commands []string
}

func (s *sent) note(command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, command)
}

func (s *sent) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	commands := s.commands
	s.commands = nil
	return commands
}

// DialHook implements redis.Hook.
func (s *sent) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (s *sent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(cmd.Name())
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (s *sent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.note(fmt.Sprintf("pipeline of %d", len(cmds)))
		return next(ctx, cmds)
	}
}

// TestReserveRoundTrips: whatever is decided for a job, and whatever is set at run time, Reserve
// sends one command, once its script is known to Redis.
func TestReserveRoundTrips(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		// so that the throttle uses this very client
		client := redis.NewClient(&redis.Options{Addr: server.Options().Addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		wire := new(sent)
		client.AddHook(wire)
		s := nearly(t, client, tenantAndGlobal(throttle.Per(1, 10*time.Second), throttle.Per(100, 10*time.Second)),
			throttle.Options{})
		if err := s.SetLimits(dawn, "tenant", "b", []throttle.Limit{throttle.Per(2, 10*time.Second)},
			time.Time{}); err != nil {
			t.Fatal(err)
		}
		comes(t, s, 0, throttle.Job{ID: "first", Keys: of("a")}, throttle.Granted)
		comes(t, s, 0, throttle.Job{ID: "second", Weight: 2, Keys: of("b")}, throttle.Granted)
		wire.take()
		one := func(what string, at time.Duration, job throttle.Job, want throttle.Outcome) throttle.Reservation {
			t.Helper()
			r := comes(t, s, at, job, want)
			if diff := cmp.Diff([]string{"evalsha"}, wire.take()); diff != "" {
				t.Errorf("%s: commands (-want +got):\n%s", what, diff)
			}
			return r
		}
		c := throttle.Job{ID: "c", Keys: of("c")}
		one("granted", 0, c, throttle.Granted)
		a := throttle.Job{ID: "a", Keys: of("a")}
		slot := one("booked", 9500*time.Millisecond, a, throttle.Booked).Start.Sub(dawn)
		one("asked again before its slot", 9600*time.Millisecond, a, throttle.Booked)
		one("redeemed", slot, a, throttle.Granted)
		one("no room", slot, throttle.Job{ID: "a2", Keys: of("a")}, throttle.Waiting)
		one("behind others", slot, throttle.Job{ID: "a3", Keys: of("a")}, throttle.Waiting)
		one("asked again in line", slot+time.Second, throttle.Job{ID: "a3", Keys: of("a")}, throttle.Waiting)
		one("under limits that were set", slot+time.Second, throttle.Job{ID: "b", Weight: 2, Keys: of("b")}, throttle.Granted)
		one("no room under them", slot+time.Second, throttle.Job{ID: "b2", Keys: of("b")}, throttle.Waiting)
	})
}

// TestFewScriptsBesideManyWhoWait: two jobs that are reserved at once cost one call, and few
// commands in it, whether ten or a hundred thousand others wait in their lane or beside it.
func TestFewScriptsBesideManyWhoWait(t *testing.T) {
	t.Parallel()
	const most = 60 // commands
	crowd := longtest.Of(20_000, 100_000)
	for name, tenant := range map[string]string{"in their lane": "crowd", "in another": "alone"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t).Client(t)
			client, hook := hookedClient(t, server)
			th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(10)),
				&throttle.Options{Lookahead: time.Second, Timeout: time.Minute})
			for first := 0; first < crowd; first += 1000 {
				jobs := make([]throttle.Job, 1000)
				for i := range jobs {
					jobs[i] = throttle.Job{ID: fmt.Sprint(first + i), Weight: 1, Keys: of("crowd")}
				}
				for _, answer := range th.ReserveAll(t.Context(), jobs) {
					if answer.Err != nil {
						t.Fatal(answer.Err)
					}
				}
			}
			hook.calls.Store(0)
			before := commandsRun(t, server)
			for i, answer := range th.ReserveAll(t.Context(),
				[]throttle.Job{{ID: "one", Weight: 1, Keys: of(tenant)}, {ID: "two", Weight: 1, Keys: of(tenant)}}) {
				if answer.Err != nil || (answer.Reservation.Outcome == throttle.Waiting) != (tenant == "crowd") {
					t.Errorf("job %d: %+v", i, answer)
				}
			}
			if calls, commands := hook.calls.Load(), commandsRun(t, server)-before; calls != 1 || commands > most {
				t.Errorf("%d calls with %d commands, want 1 with at most %d", calls, commands, most)
			}
		})
	}
}
