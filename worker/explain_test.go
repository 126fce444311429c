package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestClientExplains explains tasks by queue and ID: a task that waits; the retry of a failed task,
// which is another job; and a task that asynq does not have.
func TestClientExplains(t *testing.T) {
	t.Parallel()
	scopes := perTenant(5, time.Minute)
	scopes[0].Floor = 0.1
	inBubble(t, scopes, func(t *testing.T, w *world) {
		client := w.newClient()
		w.result = func(context.Context, *asynq.Task) error { return errBroken }
		w.serve(asynq.Config{Concurrency: 1,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }})
		failed := w.enqueue(0, "acme", 5)
		w.until("it has failed", 5*time.Second, w.in(failed, asynq.TaskStateRetry))
		waiting := w.enqueue(1, "acme", 2)
		w.until("it is put back", 5*time.Second, w.in(waiting, asynq.TaskStateRetry))

		e, err := client.Explain(t.Context(), "default", waiting)
		if err != nil {
			t.Fatal(err)
		}
		if want := "asynq:default/" + waiting + "/0"; e.Job != want || e.Waiting != 1 || e.Expected.IsZero() {
			t.Errorf("got job %s, %d in line, expected at %s; want %s, the first in line", e.Job, e.Waiting, e.Expected, want)
		}
		if len(e.Usage) != 1 || len(e.Usage[0].Limits) != 1 || e.Usage[0].Limits[0].Used != 5 {
			t.Errorf("got %+v, want one limit with 5 used", e.Usage)
		}

		said := throttle.Report{Limits: []throttle.ReportedLimit{{Units: 3, Remaining: -1}}}
		if _, err := w.throttle.Report(t.Context(), "tenant", "acme", said); err != nil {
			t.Fatal(err)
		}
		e, err = client.Explain(t.Context(), "default", waiting)
		if err != nil || len(e.Usage) != 1 || e.Usage[0].Served != 0.6 ||
			!strings.Contains(e.String(), `tenant "acme" is served 60 % of its limits by the upstream`) {
			t.Errorf("got %v, %s; want that 60 %% is served", err, e)
		}

		e, err = client.Explain(t.Context(), "default", failed)
		if err != nil {
			t.Fatal(err)
		}
		if want := "asynq:default/" + failed + "/1"; e.Job != want || !e.Slot.IsZero() || !e.Arrived.IsZero() {
			t.Errorf("got job %s, booked for %s, in line since %s; want %s, of which nothing is known", e.Job,
				e.Slot, e.Arrived, want)
		}

		if _, err := client.Explain(t.Context(), "default", "nobody"); !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Errorf("got %v, want asynq's error", err)
		}
	})
}
