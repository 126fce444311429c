package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// twoWays is a client that heeds no context. While it is stuck, its calls take a way on which they
// do not get through until that way is free again.
type twoWays struct {
	redis.Scripter
	other redis.Scripter

	mu    sync.Mutex
	stuck bool
	late  sync.WaitGroup // what is on the other way
	said  error          // of the last that was there
}

func (c *twoWays) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	c.mu.Lock()
	stuck := c.stuck
	c.mu.Unlock()
	if !stuck {
		return c.Scripter.EvalSha(ctx, hash, keys, args...)
	}
	c.late.Add(1)
	defer c.late.Done()
	cmd := c.other.EvalSha(context.Background(), hash, keys, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = cmd.Err()
	return cmd
}

func (c *twoWays) set(stuck bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = stuck
}

// everything returns what a throttle has in Redis, the last answers too.
func everything(t *testing.T, client *redis.Client, th *throttle.Throttle) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	for _, key := range keyNames(t, client, th) {
		keys[key] = content(t, client, key)
	}
	return keys
}

// TestLateCopyOfAnOlderQuestionChangesNothing: a call is stuck on its way; sent again it is
// answered, and so are later calls. When the stuck copy arrives, soon or more than a second
// later, it charges nothing, gives nothing back and takes no charge away: never do more
// than 5 units start in 10 s.
func TestLateCopyOfAnOlderQuestionChangesNothing(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		later int // questions that are answered before it arrives
		after time.Duration
		job   throttle.Job
	}{
		"before any later one":     {0, 0, throttle.Job{Weight: 1}},
		"after a later one":        {1, 0, throttle.Job{Weight: 1}},
		"more than a second later": {4, 1500 * time.Millisecond, throttle.Job{Weight: 1}},
		"of a heavy job":           {1, 1500 * time.Millisecond, throttle.Job{Weight: 4}},
		"of a plan":                {3, 1500 * time.Millisecond, throttle.Job{Weight: 2, Plan: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
				limit, stuck := throttle.Per(5, 10*time.Second), row.job
				stuck.ID = "stuck"
				client := &twoWays{Scripter: defaultClient(t, direct.Options().Addr)}
				slow := redis.NewClient(&redis.Options{Addr: proxy.Addr, MaxRetries: -1, ReadTimeout: -1, WriteTimeout: -1})
				t.Cleanup(func() { _ = slow.Close() })
				client.other = slow
				th := newThrottle(t, client, globalScope(limit), &throttle.Options{Timeout: 300 * time.Millisecond, BreakAfter: -1})
				s := newScripted(th)
				s.at(dawn)
				redistest.Await(t, "all scripts are known", func() bool {
					_, err := inspect.New(th).Check(t.Context())
					return err == nil
				})
				if err := slow.Ping(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}

				proxy.Stall()
				client.set(true)
				_, err := th.Reserve(t.Context(), stuck)
				var away *throttle.UnavailableError
				if !errors.As(err, &away) || away.Failure != "timeout" {
					t.Fatalf("stuck: got %v, want a timeout", err)
				}
				client.set(false)
				stuck.Nonce = away.Nonce
				var starts []throttletest.Start
				ask := func(job throttle.Job) throttle.Reservation {
					t.Helper()
					var r throttle.Reservation
					redistest.Await(t, job.ID+" is answered", func() (answered bool) {
						var err error
						r, err = th.Reserve(t.Context(), job)
						if errors.As(err, &away) { // a busy machine may take longer than the timeout
							job.Nonce = away.Nonce
						}
						return err == nil
					})
					if r.Outcome == throttle.Granted {
						starts = append(starts, throttletest.Start{At: r.Start, Weight: job.Weight})
					}
					return r
				}
				first := ask(stuck)
				for i := range row.later {
					ask(throttle.Job{ID: fmt.Sprint("later", i), Weight: 1})
				}
				s.at(dawn.Add(row.after))
				before := everything(t, direct, th)
				proxy.Unstall()
				client.late.Wait()
				if !redis.HasErrorPrefix(client.said, "STALE") {
					t.Errorf("the late copy was told %v", client.said)
				}
				if diff := cmp.Diff(before, everything(t, direct, th)); diff != "" {
					t.Errorf("the late copy changed something (-before +after):\n%s", diff)
				}
				if first.Outcome == throttle.Booked {
					stuck.Plan = false
					ask(stuck)
				}
				for i := range 8 {
					ask(throttle.Job{ID: fmt.Sprint("last", i), Weight: 1})
				}
				for _, over := range throttletest.Check(globalScope(limit), starts) {
					t.Error(over)
				}
				units := int64(0)
				for _, start := range starts {
					units += start.Weight
				}
				if units != limit.Units {
					t.Errorf("%d units have started, want %d: %v", units, limit.Units, starts)
				}
			})
		})
	}
}
