package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// perTenant returns a scope with one limit for each tenant.
func perTenant(units int64, window time.Duration) []throttle.Scope {
	return []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Per(units, window)}}}
}

var errBroken = errors.New("the mail server is on fire")

// asSoonAsPossible is a user's RetryDelayFunc.
func asSoonAsPossible(int, error, *asynq.Task) time.Duration { return 0 }

// TestMaxRetry0RunsLater_F31 puts back tasks that have no retry: asynq would archive
// them before it asks whether a put-back is a failure.
func TestMaxRetry0RunsLater_F31(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name    string
		enqueue func(w *world, n int) string
		putBack int64
	}{
		{"made by asynq: waits in its handler", func(w *world, n int) string {
			return w.enqueuePlain(n, "acme", 1, asynq.MaxRetry(0))
		}, 0},
		{"made by NewTask: put back", func(w *world, n int) string {
			return w.enqueue(n, "acme", 1, asynq.MaxRetry(0))
		}, 1},
		{"made by NewTask, MaxRetry taken back at Enqueue", func(w *world, n int) string {
			id := fmt.Sprintf("%06d", n)
			w.send(worker.NewTask("mail", nil, headers("acme", 1), asynq.TaskID(id)), asynq.MaxRetry(0))
			return id
		}, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
				w.serve(asynq.Config{Concurrency: 4})
				row.enqueue(w, 0)
				w.drained(1, time.Second)
				putBack := row.enqueue(w, 1)
				w.drained(2, time.Minute)
				w.until("asynq is done with the task", time.Second, w.gone(putBack))
				w.checked(2)
				w.archived(0)
				if got := w.shaper.Stats().PutBack; got != row.putBack {
					t.Errorf("put back %d times, want %d", got, row.putBack)
				}
				// The first start is a few polls after the server's, the second a window later.
				if got := w.startOf(putBack); got < 10*time.Second || got > 10200*time.Millisecond {
					t.Errorf("the task that was put back ran after %s, want a window of 10s after the first", got)
				}
			})
		})
	}
}

// TestThousandOfMaxRetry0RunExactlyOnce_F31: a thousand tasks without a retry run, each
// exactly once.
func TestThousandOfMaxRetry0RunExactlyOnce_F31(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name    string
		enqueue func(w *world, n int, tenant string, weight int64, opts ...asynq.Option) string
	}{
		{"made by asynq", (*world).enqueuePlain},
		{"made by NewTask", (*world).enqueue},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			tasks := 1000 / share
			inBubble(t, drainQuotas(2*time.Second, throttle.Exact), func(t *testing.T, w *world) {
				for n := range tasks {
					row.enqueue(w, n, fmt.Sprintf("t%d", n%8), 1, asynq.MaxRetry(0))
				}
				w.serve(asynq.Config{Concurrency: 16})
				w.drained(tasks, time.Minute)
				w.checked(tasks)
				w.archived(0)
				t.Logf("%d tasks, makespan %s of %s", tasks, w.makespan(), optimum(w.scopes, w.starts))
			})
		})
	}
}

// TestRetriesAreTheUsersOwn counts the handler calls of a task that always fails:
// put-backs cost no call, and the spare retries of NewTask add none.
func TestRetriesAreTheUsersOwn(t *testing.T) {
	t.Parallel()
	type enqueue = func(w *world, n int, tenant string, weight int64, opts ...asynq.Option) string
	rows := []struct {
		name     string
		enqueue  enqueue
		maxRetry int
	}{
		{"NewTask, MaxRetry 0", (*world).enqueue, 0},
		{"NewTask, MaxRetry 2", (*world).enqueue, 2},
		{"asynq's, MaxRetry 0", (*world).enqueuePlain, 0},
		{"asynq's, MaxRetry 2", (*world).enqueuePlain, 2},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(1, 3*time.Second), func(t *testing.T, w *world) {
				w.result = func(ctx context.Context, _ *asynq.Task) error {
					if id, _ := asynq.GetTaskID(ctx); id == "000001" {
						return errBroken
					}
					return nil
				}
				w.serve(asynq.Config{Concurrency: 4, RetryDelayFunc: asSoonAsPossible})
				w.enqueue(0, "acme", 1) // takes the first window, so that each attempt is put back
				w.drained(1, time.Second)
				failing := row.enqueue(w, 1, "acme", 1, asynq.MaxRetry(row.maxRetry))
				w.until("the task is archived", 5*time.Minute, w.in(failing, asynq.TaskStateArchived))
				w.archived(1)
				w.withinLimits()
				if got, want := w.ran(failing), row.maxRetry+1; got != want {
					t.Errorf("its handler was called %d times, want %d", got, want)
				}
				info := w.task(failing)
				if info.Retried != row.maxRetry {
					t.Errorf("retried %d times, want %d", info.Retried, row.maxRetry)
				}
				if !strings.Contains(info.LastErr, errBroken.Error()) {
					t.Errorf("the last error is %q, want the handler's", info.LastErr)
				}
			})
		})
	}
}

// TestPutBacksSpendNoRetry runs a waiting task by hand, too early, again and again: each
// put-back costs no retry.
func TestPutBacksSpendNoRetry(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Minute), func(t *testing.T, w *world) {
		w.serve(asynq.Config{Concurrency: 4})
		w.enqueue(0, "acme", 1)
		w.drained(1, time.Second)
		id := w.enqueue(1, "acme", 1, asynq.MaxRetry(2))
		for range 20 {
			w.until("the task is put back", 5*time.Second, w.in(id, asynq.TaskStateRetry))
			if info := w.task(id); info.Retried != 0 {
				t.Fatalf("retried %d times after put-backs, want 0", info.Retried)
			}
			if err := w.tasks.RunTask("default", id); err != nil {
				t.Fatal(err)
			}
		}
		w.drained(2, 2*time.Minute)
		w.checked(2)
		w.archived(0)
		if got := w.shaper.Stats().PutBack; got < 20 {
			t.Errorf("put back %d times, want 20 or more", got)
		}
	})
}

// TestLastRetryWaitsInTheHandler_F31 lets a task of asynq.NewTask come to its last retry
// without room: it waits in its handler.
func TestLastRetryWaitsInTheHandler_F31(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		failures := 2
		w.result = func(ctx context.Context, _ *asynq.Task) error {
			if retried, _ := asynq.GetRetryCount(ctx); retried < failures {
				return errBroken
			}
			return nil
		}
		id := w.enqueuePlain(0, "acme", 1, asynq.MaxRetry(failures))
		w.serve(asynq.Config{Concurrency: 2, RetryDelayFunc: asSoonAsPossible})
		w.until("the task comes to its last retry", time.Minute, func() bool {
			info := w.task(id)
			return info.Retried == failures && info.State == asynq.TaskStateActive
		})
		putBack := w.shaper.Stats().PutBack
		w.drained(1, time.Minute)
		w.until("asynq is done with the task", time.Second, w.gone(id))
		w.withinLimits()
		w.archived(0)
		if got := w.ran(id); got != failures+1 {
			t.Errorf("its handler was called %d times, want %d", got, failures+1)
		}
		if got := w.shaper.Stats().PutBack; got != putBack || putBack != int64(failures-1) {
			t.Errorf("put back %d times before its last retry and %d then, want %d and 0", putBack, got-putBack, failures-1)
		}
	})
}

// TestTimeoutsDoNotUseTheSpareRetry ends attempts by asynq's Timeout, which the
// middleware cannot see: a spare retry brings the task back once more, and the task
// is ended without a call of its handler.
func TestTimeoutsDoNotUseTheSpareRetry(t *testing.T) {
	t.Parallel()
	for _, maxRetry := range []int{0, 2} {
		t.Run(fmt.Sprintf("MaxRetry %d", maxRetry), func(t *testing.T) {
			inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
				w.handle = 3 * time.Second // does not look at its context
				id := w.enqueue(0, "acme", 1, asynq.MaxRetry(maxRetry), asynq.Timeout(time.Second))
				w.serve(asynq.Config{Concurrency: 2, RetryDelayFunc: asSoonAsPossible})
				w.until("the task is archived", time.Minute, w.in(id, asynq.TaskStateArchived))
				w.archived(1)
				if got, want := w.ran(id), maxRetry+1; got != want {
					t.Errorf("its handler was called %d times, want %d", got, want)
				}
				if got := w.task(id).LastErr; !strings.HasPrefix(got, "worker: the last of ") ||
					!strings.Contains(got, context.DeadlineExceeded.Error()) {
					t.Errorf("the last error is %q, want what ended the last attempt", got)
				}
				time.Sleep(w.handle) // asynq leaves a handler behind after its Timeout
			})
		})
	}
}

// TestSpareRetryOfAnUnlistedQueue: a spare retry asks asynq how the last attempt ended. While it may not ask, the log
// names the right that is missing.
func TestSpareRetryOfAnUnlistedQueue(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(100, time.Hour), func(t *testing.T, w *world) {
		link := newWire(w)
		s, logs := w.newShaperWithoutSADD(link.client)
		w.result = func(context.Context, *asynq.Task) error {
			w.redis.Del("asynq:queues")
			panic("always")
		}
		w.start(link.client, s.Configure(asynq.Config{Concurrency: 1, RetryDelayFunc: asSoonAsPossible}),
			s.Wrap(asynq.HandlerFunc(w.process)))
		id := w.enqueue(0, "acme", 1, asynq.MaxRetry(0))
		w.until("the log says why the task does not end", time.Minute,
			func() bool { return logs.FilterMessageSnippet("SADD").Len() > 0 })
		if err := w.client.SAdd(t.Context(), "asynq:queues", "default").Err(); err != nil {
			t.Fatal(err)
		}
		w.until("the task is archived", time.Minute, w.in(id, asynq.TaskStateArchived))
	})
}

// TestSpareRetryIsNotTakenFromCopies: the mark of the spare retries has no effect on a
// task that has none: a task made with another task's headers, or given another MaxRetry
// at Enqueue.
func TestSpareRetryIsNotTakenFromCopies(t *testing.T) {
	t.Parallel()
	marked := worker.NewTask("mail", nil, headers("acme", 1), asynq.MaxRetry(5))
	rows := []struct {
		name string
		task *asynq.Task
		opts []asynq.Option
		runs int
	}{
		{"its headers on asynq's task", asynq.NewTaskWithHeaders("mail", nil, marked.Headers(), asynq.MaxRetry(2)), nil, 3},
		{"its headers on NewTask", worker.NewTask("mail", nil, marked.Headers(), asynq.MaxRetry(2)), nil, 3},
		{"MaxRetry at Enqueue", marked, []asynq.Option{asynq.MaxRetry(2)}, 3},
		{"MaxRetry 0 at Enqueue", marked, []asynq.Option{asynq.MaxRetry(0)}, 1},
		{"last MaxRetry wins", worker.NewTask("mail", nil, headers("acme", 1), asynq.MaxRetry(7), asynq.MaxRetry(1)), nil, 2},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
				w.result = func(context.Context, *asynq.Task) error { return errBroken }
				w.send(row.task, append(slices.Clone(row.opts), asynq.TaskID("000000"))...)
				w.serve(asynq.Config{Concurrency: 2, RetryDelayFunc: asSoonAsPossible})
				w.until("the task is archived", time.Minute, w.in("000000", asynq.TaskStateArchived))
				if got := w.ran("000000"); got != row.runs {
					t.Errorf("its handler was called %d times, want %d", got, row.runs)
				}
			})
		})
	}
}

// TestNewTaskKeepsWhatItIsGiven compares the task in asynq with the arguments.
func TestNewTaskKeepsWhatItIsGiven(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		given := map[string]string{"tenant": "acme"}
		w.send(worker.NewTask("mail", []byte("body"), given, asynq.TaskID("a")))
		w.send(worker.NewTask("mail", nil, nil, asynq.TaskID("b"), asynq.MaxRetry(3)))
		w.send(worker.NewTask("mail", nil, nil, asynq.TaskID("c"), asynq.MaxRetry(math.MaxInt32)))
		a, b, c := w.task("a"), w.task("b"), w.task("c")
		if string(a.Payload) != "body" || a.Headers["tenant"] != "acme" || a.Type != "mail" {
			t.Errorf("got %+v, want the payload, header and type that were given", a)
		}
		if len(given) != 1 {
			t.Errorf("the caller's headers are now %v", given)
		}
		if a.MaxRetry != 35 || b.MaxRetry != 13 {
			t.Errorf("MaxRetry is %d and %d, want ten more than asynq's 25 and than 3", a.MaxRetry, b.MaxRetry)
		}
		if c.MaxRetry != math.MaxInt32 {
			t.Errorf("MaxRetry is %d, want the most there is", c.MaxRetry)
		}
	})
}
