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

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestAskedToWait_ShorterThanMaxWait: a task is put back even if it could wait for the end of
// the pause inside its handler.
func TestAskedToWait_ShorterThanMaxWait(t *testing.T) {
	t.Parallel()
	inDomains(t, wide, func(t *testing.T, w *world) {
		const wait = worker.DefaultMaxWait / 2
		w.once(func(context.Context) error { return worker.AskedToWait("domain", wait, nil) })
		putBacks := w.serveHearing()
		id := w.mail(0, "acme", "d")
		w.drained(1, time.Minute)
		var putBack *worker.PutBackError
		if err := <-putBacks; !errors.As(err, &putBack) || putBack.Err != nil || putBack.Hold == nil || !putBack.Hold.Paused {
			t.Errorf("got %v, want a put-back by the pause", err)
		}
		if w.ran(id) != 2 || w.startOf(id) < wait || w.startOf(id) > time.Second {
			t.Errorf("called %d times, the last after %s; want twice, %s after the first", w.ran(id), w.startOf(id), wait)
		}
	})
}

// serveHearing is serve with a middleware outside of the shaper that hears of errors.
func (w *world) serveHearing() <-chan error {
	heard := make(chan error, 10)
	inner := w.shaper.Wrap(asynq.HandlerFunc(w.process))
	w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 4}),
		asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			err := inner.ProcessTask(ctx, task)
			heard <- err
			return err
		}))
	return heard
}

// TestAskedToWait_StrangeDelays returns errors made by hand: AskedToWait makes none of these
// delays.
func TestAskedToWait_StrangeDelays(t *testing.T) {
	t.Parallel()
	rows := []struct{ asked, want time.Duration }{
		{0, worker.DefaultAskedWait},
		{-1, worker.DefaultAskedWait},
		{-time.Hour, worker.DefaultAskedWait},
		{math.MinInt64, worker.DefaultAskedWait},
		{upstream.MaxWait + 1, upstream.MaxWait},
		{1000 * upstream.MaxWait, upstream.MaxWait},
		{math.MaxInt64, upstream.MaxWait},
	}
	for _, row := range rows {
		for _, mode := range []throttle.Mode{throttle.Enforce, throttle.Off} {
			t.Run(fmt.Sprint(int64(row.asked), " ", mode), func(t *testing.T) {
				t.Parallel()
				inDomains(t, wide, func(t *testing.T, w *world) {
					if err := inspect.New(w.throttle).SetMode(t.Context(), "domain", mode); err != nil {
						t.Fatal(err)
					}
					w.result = func(context.Context, *asynq.Task) error {
						return &worker.WaitError{Scope: "domain", Delay: row.asked}
					}
					w.serve(asynq.Config{Concurrency: 4})
					id := w.mail(0, "acme", "d")
					w.until("it is put back", time.Second, w.in(id, asynq.TaskStateRetry))
					put := time.Now()
					if got := w.state("domain", "d").Paused.Sub(put); got > row.want || got < row.want-time.Second {
						t.Errorf("paused for %s, want %s", got, row.want)
					}
					info := w.task(id)
					if got := info.NextProcessAt.Sub(put); got < row.want-time.Second || got > row.want+20*time.Second {
						t.Errorf("asynq brings it back after %s, want %s", got, row.want)
					}
					if mode == throttle.Off && info.LastErr !=
						fmt.Sprintf("throttled: worker: the upstream asks to wait %s, scope domain", row.want) {
						t.Errorf("the last error is %q, want it to say %s", info.LastErr, row.want)
					}
					time.Sleep(10 * time.Second)
					if w.ran(id) != 1 {
						t.Errorf("called %d times before the wait was over", w.ran(id))
					}
				})
			})
		}
	}
}

// TestAskedToWait_NoLongerThanTheOption: however long an upstream asks to wait, by a WaitError or
// a report, its key is closed for as long as Options.MaxAskedWait says.
func TestAskedToWait_NoLongerThanTheOption(t *testing.T) {
	t.Parallel()
	const most = 20 * time.Second
	scopes := []throttle.Scope{{Name: "tenant", Optional: true},
		{Name: "domain", Limits: []throttle.Limit{throttle.PerMinute(100)}}}
	follows := slices.Clone(scopes)
	follows[1].Floor = 0.1
	asked := map[string]func(ctx context.Context) error{
		"a wait":       func(context.Context) error { return worker.AskedToWait("domain", time.Hour, nil) },
		"a short wait": func(context.Context) error { return worker.AskedToWait("domain", 5*time.Second, nil) },
		"no time":      func(context.Context) error { return worker.AskedToWait("domain", 0, nil) },
		"a report": func(ctx context.Context) error {
			_, err := worker.Report(ctx, "domain", throttle.Report{Refused: true, RetryAfter: time.Hour})
			return err
		},
	}
	for name, row := range map[string]struct {
		scopes []throttle.Scope
		asked  string
		want   time.Duration
	}{
		"a rigid scope":            {scopes, "a wait", most},
		"it does not say how long": {scopes, "no time", most},
		"a shorter wait":           {scopes, "a short wait", 5 * time.Second},
		"a scope that follows":     {follows, "a wait", most},
		"a report":                 {follows, "a report", most},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, row.scopes, func(t *testing.T, w *world) {
				w.shaper = w.newShaperOf(domainJob, &worker.Options{MaxAskedWait: most})
				w.result = func(ctx context.Context, _ *asynq.Task) error { return asked[row.asked](ctx) }
				w.serve(asynq.Config{Concurrency: 4})
				id := w.mail(0, "acme", "d")
				w.until("it has run", time.Second, func() bool { return w.ran(id) == 1 })
				time.Sleep(100 * time.Millisecond)
				if got := time.Until(w.state("domain", "d").Paused); got > row.want || got < row.want-time.Second {
					t.Errorf("paused for %s, want %s", got, row.want)
				}
			})
		})
	}
}

// TestAskedToWait_BeyondTheDeadline: a job that the pause keeps from starting in time is ended at
// once.
func TestAskedToWait_BeyondTheDeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, wide, func(t *testing.T, w *world) {
		deadline := w.began.Add(15 * time.Second)
		s := w.newShaperOf(func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
			job, err := domainJob(ctx, task)
			job.Deadline = deadline
			return job, err
		}, nil)
		w.once(func(ctx context.Context) error {
			if id, _ := asynq.GetTaskID(ctx); id == "000000" {
				return worker.AskedToWait("domain", 10*time.Second, nil)
			}
			return worker.AskedToWait("tenant", 20*time.Second, nil)
		})
		w.serveWith(s, asynq.Config{Concurrency: 4})
		inTime := w.mail(0, "acme", "a")
		late := w.mail(1, "other", "b")
		w.until("the late one is archived", time.Second, w.in(late, asynq.TaskStateArchived))
		if info := w.task(late); !strings.Contains(info.LastErr, "is after the deadline") || w.ran(late) != 1 {
			t.Errorf("ran %d times and ended with %q, want the deadline", w.ran(late), info.LastErr)
		}
		w.drained(1, time.Minute)
		if w.ran(inTime) != 2 || s.Stats().Ended != 1 {
			t.Errorf("the other ran %d times, %d ended; want 2 and 1", w.ran(inTime), s.Stats().Ended)
		}
	})
}
