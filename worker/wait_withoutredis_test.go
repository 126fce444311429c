package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestAskedToWait_WithoutRedis: without Redis nothing is paused. The task is put back for the
// wait, and its charge stays.
func TestAskedToWait_WithoutRedis(t *testing.T) {
	t.Parallel()
	for _, fallback := range []throttle.Fallback{throttle.FallbackClosed, throttle.FallbackOpen} {
		t.Run(fmt.Sprint("fallback ", fallback), func(t *testing.T) {
			t.Parallel()
			inBubble(t, wide, func(t *testing.T, w *world) {
				cable := newWire(w)
				th, err := throttle.New("world", cable.client, w.scopes, &throttle.Options{Fallback: fallback})
				if err != nil {
					t.Fatal(err)
				}
				s, err := worker.New(th, w.client, domainJob, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Stop)
				w.once(func(context.Context) error {
					cable.cut()
					return worker.AskedToWait("domain", 20*time.Second, nil)
				})
				w.serveWith(s, asynq.Config{Concurrency: 4})
				id := w.mail(0, "acme", "d", asynq.MaxRetry(0))
				w.until("it is put back", 3*time.Second, w.in(id, asynq.TaskStateRetry))
				cable.mend()
				if got := w.task(id).Retried; got != 0 {
					t.Errorf("retried %d times, want 0", got)
				}
				w.drained(1, time.Minute)
				if got := w.startOf(id); got < 20*time.Second || got > 24*time.Second || w.ran(id) != 2 {
					t.Errorf("called %d times, the last after %s; want twice and 20s", w.ran(id), got)
				}
				w.archived(0)
			})
		})
	}
}

// TestAskedToWait_RedisLostBetween loses Redis after the pause: FallbackOpen would grant the
// task, which must wait all the same.
func TestAskedToWait_RedisLostBetween(t *testing.T) {
	t.Parallel()
	inBubble(t, wide, func(t *testing.T, w *world) {
		cable := newWire(w)
		th, err := throttle.New("world", cable.client, w.scopes, &throttle.Options{Fallback: throttle.FallbackOpen})
		if err != nil {
			t.Fatal(err)
		}
		s, err := worker.New(th, w.client, domainJob, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		// The decision after the pause is not answered in time.
		var asked, paused, lost atomic.Bool
		cable.before(func(cmd redis.Cmder) {
			switch script := scriptOf(cmd); {
			case asked.Load() && script == "pause":
				paused.Store(true)
			case paused.Load() && script == "reserve" && lost.CompareAndSwap(false, true):
				time.Sleep(2 * timeout)
			}
		})
		w.once(func(context.Context) error {
			asked.Store(true)
			return worker.AskedToWait("domain", 20*time.Second, nil)
		})
		w.serveWith(s, asynq.Config{Concurrency: 4})
		id := w.mail(0, "acme", "d")
		w.drained(1, time.Minute)
		if !lost.Load() {
			t.Fatal("no decision was asked for")
		}
		if got := w.startOf(id); got < 20*time.Second || w.ran(id) != 2 {
			t.Errorf("called %d times, the last after %s; want twice and 20s", w.ran(id), got)
		}
		if got := s.Stats().PutBack; got != 1 {
			t.Errorf("put back %d times, want once", got)
		}
		w.archived(0)
	})
}

// TestAskedToWait_EffectNotRead: the key is closed, and then Redis does not say whether its scope is enforced. The task
// is not planned, since a scope that is not enforced would let it start at once; it is put back for the wait. The log
// does not say that the key is open.
func TestAskedToWait_EffectNotRead(t *testing.T) {
	t.Parallel()
	for name, floor := range map[string]float64{"a pause": 0, "a report": 0.1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scopes := slices.Clone(wide)
			scopes[2].Floor = floor
			inBubble(t, scopes, func(t *testing.T, w *world) {
				cable := newWire(w)
				th, err := throttle.New("world", cable.client, w.scopes, nil)
				if err != nil {
					t.Fatal(err)
				}
				opts, logs := watched()
				s, err := worker.New(th, w.client, domainJob, opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Stop)
				var asked, lost atomic.Bool
				cable.before(func(cmd redis.Cmder) {
					if asked.Load() && scriptOf(cmd) == "usage" && lost.CompareAndSwap(false, true) {
						time.Sleep(2 * timeout)
					}
				})
				w.once(func(context.Context) error {
					asked.Store(true)
					return worker.AskedToWait("domain", 20*time.Second, nil)
				})
				w.serveWith(s, asynq.Config{Concurrency: 4})
				id := w.mail(0, "acme", "d")
				w.until("it is put back", 3*time.Second, w.in(id, asynq.TaskStateRetry))
				if !lost.Load() || w.state("domain", "d").Paused.IsZero() {
					t.Fatalf("the effect was asked for: %t, the key is closed until %s", lost.Load(), w.state("domain", "d").Paused)
				}
				w.unused("d")
				not, unknown := logs.FilterMessageSnippet("is not paused").Len(),
					logs.FilterMessageSnippet("not known whether").FilterField(zap.String("scope", "domain")).Len()
				if not != 0 || unknown != 1 {
					t.Errorf("logged %d times that it is not paused, %d times that it is not known; want 0 and 1", not, unknown)
				}
				w.drained(1, time.Minute)
				if got := w.startOf(id); got < 20*time.Second || got > 24*time.Second || w.ran(id) != 2 {
					t.Errorf("called %d times, the last after %s; want twice and 20s", w.ran(id), got)
				}
				w.archived(0)
			})
		})
	}
}

// scriptOf returns the name of a throttle's script that pauses, decides or reads the state of a scope key; empty for
// other commands.
func scriptOf(cmd redis.Cmder) string {
	args := cmd.Args()
	switch {
	case len(args) < 8 || cmd.Name() != "evalsha":
	case args[7] == "pause":
		return "pause"
	case len(args) == 9 && args[7] == "":
		return "usage"
	case len(args) > 9 && strings.HasPrefix(fmt.Sprint(args[9]), "asynq:"):
		return "reserve"
	}
	return ""
}
