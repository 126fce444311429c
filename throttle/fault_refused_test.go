package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestF10_F14_F19_RedisRefusesToWrite: F10, a replica answered; F14, out of memory; F19, too
// few replicas. Nothing is decided and nothing is written, and decisions go on when the
// reason is gone.
func TestF10_F14_F19_RedisRefusesToWrite(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		failure    string
		begin, end []any
	}{
		"F10 a replica": {
			"readonly",
			[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"},
		},
		"F14 out of memory": {
			"oom",
			[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"},
		},
		"F19 no replicas": {
			"noreplica",
			[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory-policy", "noeviction")
			direct := server.Client(t)
			scopes := []throttle.Scope{
				{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(5), throttle.PerDay(500)}},
				{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(8)}},
			}
			do := func(command []any) {
				if err := direct.Do(t.Context(), command...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for lookahead, want := range map[time.Duration]struct{ second, after throttle.Outcome }{
				maxWindow:   {throttle.Booked, throttle.Granted},
				time.Second: {throttle.Waiting, throttle.Waiting},
			} {
				th := newThrottle(t, onceClient(t, server.Addr), scopes,
					&throttle.Options{Lookahead: lookahead, Timeout: patient, BreakAfter: -1})
				reserve(t, th, throttle.Job{ID: "a", Weight: 3, Keys: of("a")})
				if got := reserve(t, th, throttle.Job{ID: "b", Weight: 3, Keys: of("a")}); got.Outcome != want.second {
					t.Errorf("3 and 3 of 5: got %+v, want %v", got, want.second)
				}
				do(test.begin)
				unchanged(t, direct, th, func() {
					for _, job := range []throttle.Job{
						{ID: "new", Weight: 1, Keys: of("a")}, {ID: "none before", Weight: 1, Keys: of("b")},
						{ID: "booked", Weight: 5, Keys: of("a")}, {ID: "b", Weight: 3, Keys: of("a"), MaxWait: 2 * time.Hour},
					} {
						_, err := th.Reserve(t.Context(), job)
						unavailable(t, "job "+job.ID, err, test.failure)
					}
				})
				do(test.end)
				if got := reserve(t, th, throttle.Job{ID: "new", Weight: 1, Keys: of("a")}); got.Outcome != want.after {
					t.Errorf("afterwards: got %+v, want %v", got, want.after)
				}
			}
		})
	}
}

// TestF17_Busy: a script of another program blocks Redis. Each call gets a typed error,
// and decisions go on when that script has been killed.
func TestF17_Busy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--lua-time-limit", "10")
	direct := server.Client(t)
	th := newThrottle(t, onceClient(t, server.Addr), globalScope(throttle.PerHour(1000)),
		&throttle.Options{Timeout: patient, BreakAfter: -1})
	reserve(t, th, throttle.Job{ID: "warm", Weight: 1})
	slow := onceClient(t, server.Addr)
	var wg sync.WaitGroup
	wg.Go(func() { _ = slow.Eval(context.Background(), "while true do end", nil).Err() })
	redistest.Await(t, "Redis is busy", func() bool {
		_, err := th.Reserve(t.Context(), throttle.Job{ID: "probe", Weight: 1})
		var u *throttle.UnavailableError
		return errors.As(err, &u) && u.Failure == "busy"
	})
	for i := range 20 {
		_, err := th.Reserve(t.Context(), throttle.Job{ID: fmt.Sprint(i), Weight: 1})
		unavailable(t, fmt.Sprintf("job %d", i), err, "busy")
	}
	if err := direct.ScriptKill(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	redistest.Await(t, "decided again", func() bool {
		_, err := th.Reserve(t.Context(), throttle.Job{ID: "after", Weight: 1})
		return err == nil
	})
}

// TestF16_ForeignData: a key of the throttle has another type or a foreign text. The call
// fails with ErrState, and writes nothing, neither to that key nor to others.
func TestF16_ForeignData(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(ctx context.Context, client *redis.Client, key string) error{
		"a list": func(ctx context.Context, client *redis.Client, key string) error {
			return client.RPush(ctx, key, "x").Err()
		},
		"a string": func(ctx context.Context, client *redis.Client, key string) error {
			return client.Set(ctx, key, "something else", 0).Err()
		},
		"a sorted set": func(ctx context.Context, client *redis.Client, key string) error {
			return client.ZAdd(ctx, key, redis.Z{Score: 1, Member: "something else"}).Err()
		},
		"a hash": func(ctx context.Context, client *redis.Client, key string) error {
			return client.HSet(ctx, key, "id", "something else", "*", "something else").Err()
		},
	}
	ours := map[string]string{ // which of them is as ours are, so far as that can be seen
		"timers": "a sorted set", "wait:tenant:a": "a sorted set",
		"lane:a|global:,tenant:a": "a list", "shares": "a sorted set", "jobs": "a hash",
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50))
		job := throttle.Job{ID: "id", Weight: 1, Keys: of("a")}
		for _, end := range []string{
			"control", "key:tenant:a", "key:global:", "timers", "jobs", "shares",
			"lane:a|global:,tenant:a", "wait:tenant:a",
		} {
			for kind, put := range kinds {
				for _, before := range []int{0, 1, 3} { // how many jobs came before: the third waits
					th := newThrottle(t, client, scopes,
						&throttle.Options{Lookahead: time.Second, Share: func(string) int { return 2 }})
					for i := range before {
						reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 2, Keys: of("a")})
					}
					if inLine := !strings.Contains(end, "key:") && end != "control"; kind == ours[end] ||
						inLine && before < 3 && end != "timers" {
						continue // it is not looked at where nobody waits
					}
					key := "thr:{" + th.Name() + "}:4:" + end
					was := client.Rename(t.Context(), key, "aside:"+key).Err() == nil
					if err := put(t.Context(), client, key); err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("%s at %s after %d jobs", kind, end, before)
					held := keyspace(t, client, th)
					_, err := th.Reserve(t.Context(), job)
					if !errors.Is(err, throttle.ErrState) {
						t.Errorf("%s: got %v, want ErrState", what, err)
					}
					if diff := cmp.Diff(held, keyspace(t, client, th)); diff != "" {
						t.Errorf("%s: something was written (-before +after):\n%s", what, diff)
					}
					if err := client.Del(t.Context(), key).Err(); err != nil {
						t.Fatal(err)
					}
					if was {
						if err := client.Rename(t.Context(), "aside:"+key, key).Err(); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := th.Reserve(t.Context(), job); err != nil {
						t.Errorf("%s, when it is gone: got %v, want none", what, err)
					}
				}
			}
		}
	})
}
