package worker_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestBacklogIsNoted: while tasks wait, all processes together note once a minute how many wait
// and for how long, whether a person looks or not. There are 720 notes at most, for 12 hours.
func TestBacklogIsNoted(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(20)}}, {Name: "tenant"}}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		const tasks = 160
		for i := range tasks {
			w.enqueue(i, "acme", 1)
		}
		second, err := throttle.New("world", w.client, scopes, &throttle.Options{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		go func() { // another process that has answers of Redis
			tick := time.NewTicker(7 * time.Second)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					_, _ = inspect.New(second).Usage(t.Context(), throttle.Global, "")
				}
			}
		}()
		w.serve(asynq.Config{Concurrency: 200})
		time.Sleep(7*time.Minute - 10*time.Second)
		noted, err := inspect.New(w.throttle).Backlogs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(noted); n < 5 || n > 8 {
			t.Errorf("%d notes in seven minutes, want one a minute: %v", n, noted)
		}
		for i, b := range noted {
			started := int64(20 * (1 + b.At.Sub(w.began)/time.Minute))
			since := b.At.Sub(w.began)
			off := b.Jobs - (tasks - started)
			if off < -20 || off > 20 || (b.Waited-since).Abs() > 2*time.Second {
				t.Errorf("note %d, %s after the beginning: %d jobs, of which the first waits for %s", i, since, b.Jobs, b.Waited)
			}
			if i > 0 && b.At.Sub(noted[i-1].At) < 45*time.Second {
				t.Errorf("notes %d and %d are %s apart", i-1, i, b.At.Sub(noted[i-1].At))
			}
		}
		close(stop)
		key := "thr:{world}:4:backlog"
		for range 800 {
			w.client.RPush(t.Context(), key, "of another state")
		}
		time.Sleep(90 * time.Second)
		if n := w.client.LLen(t.Context(), key).Val(); n != 720 {
			t.Errorf("%d notes are kept, want 720", n)
		}
		if left := w.client.PTTL(t.Context(), key).Val(); left <= 11*time.Hour || left > 12*time.Hour {
			t.Errorf("they are kept for %s, want 12 h", left)
		}
		again, err := inspect.New(w.throttle).Backlogs(t.Context())
		if more := len(again) - len(noted); err != nil || more < 1 || more > 3 {
			t.Errorf("%d notes are read after %d, want those of two minutes more (%v)", len(again), len(noted), err)
		}
		w.drained(tasks, time.Hour)
	})
}
