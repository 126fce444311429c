package otelthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestMetricsOfADrain: while a backlog is worked off, and afterwards, the metrics have the names, the units and the
// kinds that the guide lists, and the values of the drain.
func TestMetricsOfADrain(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(2, 10*time.Second), false, func(t *testing.T, w *world, r *recorded) {
		r.Watch(inspect.New(w.throttle))
		shaper := w.newShaper(w.throttle, nil)
		w.serve(shaper.Configure(asynq.Config{Concurrency: 4}), func(context.Context, *asynq.Task) error {
			time.Sleep(time.Second)
			return nil
		}, r.Around(shaper))
		const tasks = 8
		for n := range tasks {
			w.enqueue(n, map[string]string{"tenant": "acme"})
		}
		settled(700 * time.Millisecond)
		expectValues(t, r, "throttle.active_jobs", map[string]int64{
			"throttle.name=world,throttle.scope=global": 2, "throttle.name=world,throttle.scope=tenant": 2})
		expectValues(t, r, "throttle.queued_jobs", map[string]int64{"throttle.name=world,throttle.scope=tenant": 6})
		settled(time.Minute)
		expectValues(t, r, "throttle.queued_jobs", map[string]int64{"throttle.name=world,throttle.scope=tenant": 0})
		expectValues(t, r, "throttle.active_jobs", map[string]int64{
			"throttle.name=world,throttle.scope=global": 0, "throttle.name=world,throttle.scope=tenant": 0})
		for _, name := range []string{"throttle.job.time_in_queue", "throttle.job.duration"} {
			expectValues(t, r, name, map[string]int64{
				"throttle.name=world,throttle.scope=global": tasks, "throttle.name=world,throttle.scope=tenant": tasks})
		}
		expectValues(t, r, "throttle.jobs", map[string]int64{
			"throttle.name=world,throttle.result=granted,throttle.scope=global": tasks,
			"throttle.name=world,throttle.result=granted,throttle.scope=tenant": tasks})
		var putBacks int64
		for _, n := range r.values("throttle.job.put_backs") {
			putBacks += n
		}
		if putBacks != shaper.Stats().PutBack || putBacks == 0 {
			t.Errorf("%d put-backs are counted, want %d", putBacks, shaper.Stats().PutBack)
		}
		expectSum(t, r, "throttle.job.duration", tasks*time.Second)
		expectSum(t, r, "throttle.job.time_in_queue", 2*(10+20+30)*time.Second)
		expectInstruments(t, r)
	})
}

// TestActiveJobsAfterAPanic: a handler that panics is not counted as running for ever.
func TestActiveJobsAfterAPanic(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(2, time.Second), false, func(t *testing.T, w *world, r *recorded) {
		shaper := w.newShaper(w.throttle, nil)
		w.serve(shaper.Configure(asynq.Config{Concurrency: 1}), func(context.Context, *asynq.Task) error {
			panic("for the test")
		}, r.Around(shaper))
		w.enqueue(1, map[string]string{"tenant": "acme"}, asynq.MaxRetry(0))
		settled(5 * time.Second)
		expectValues(t, r, "throttle.active_jobs", map[string]int64{
			"throttle.name=world,throttle.scope=global": 0, "throttle.name=world,throttle.scope=tenant": 0})
	})
}

func expectValues(t *testing.T, r *recorded, name string, want map[string]int64) {
	t.Helper()
	if diff := cmp.Diff(want, r.values(name)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", name, diff)
	}
}

// expectSum expects the sum of a histogram's values, with a second more or less for polling.
func expectSum(t *testing.T, r *recorded, name string, want time.Duration) {
	t.Helper()
	data, is := r.metrics()[name].Data.(metricdata.Histogram[float64])
	if !is || len(data.DataPoints) == 0 {
		t.Errorf("%s is no histogram with values", name)
		return
	}
	if got := data.DataPoints[0].Sum; got < want.Seconds()-1 || got > want.Seconds()+1 {
		t.Errorf("%s has the sum %v, want %v", name, got, want.Seconds())
	}
}

func expectInstruments(t *testing.T, r *recorded) {
	t.Helper()
	got := make(map[string]string)
	for name, m := range r.metrics() {
		kind := "histogram"
		if sum, is := m.Data.(metricdata.Sum[int64]); is && sum.IsMonotonic {
			kind = "counter"
		} else if is {
			kind = "updowncounter"
		}
		got[name] = fmt.Sprint(kind, " ", m.Unit)
	}
	if diff := cmp.Diff(map[string]string{
		"throttle.active_jobs":       "updowncounter {job}",
		"throttle.job.duration":      "histogram s",
		"throttle.job.put_backs":     "counter {put_back}",
		"throttle.job.time_in_queue": "histogram s",
		"throttle.jobs":              "counter {job}",
		"throttle.queued_jobs":       "updowncounter {job}",
	}, got); diff != "" {
		t.Errorf("the metrics differ (-want +got):\n%s", diff)
	}
}

// TestResultsAndReasons: each answer and each put-back is counted under the word that package metrics has for it, and
// under the scopes in which the job takes units.
func TestResultsAndReasons(t *testing.T) {
	t.Parallel()
	job := throttle.Job{ID: "1", Weight: 1, Keys: map[string]string{"tenant": "acme", "domain": "example.org"},
		Costs: map[string]int64{"domain": 0}}
	hold := &throttle.Hold{Scope: "tenant", Key: "acme", Limit: throttle.PerMinute(4)}
	unavailable := &throttle.UnavailableError{Failure: "timeout", Err: context.DeadlineExceeded}
	for _, d := range []throttle.Decision{
		{Reservation: throttle.Reservation{Outcome: throttle.Granted}},
		{Reservation: throttle.Reservation{Outcome: throttle.Granted, Source: throttle.FallbackOpen}},
		{Reservation: throttle.Reservation{Outcome: throttle.Booked, Hold: hold}},
		{Reservation: throttle.Reservation{Outcome: throttle.Waiting}},
		{Err: &throttle.LineFullError{Scope: "tenant"}},
		{Err: &throttle.BlockedError{Scope: "tenant"}},
		{Err: &throttle.DeadlineError{Hold: hold}},
		{Err: fmt.Errorf("wrapped: %w", &throttle.NeverFitsError{})},
		{Err: &throttle.InvalidJobError{}},
		{Err: &throttle.ArgumentError{}},
		{Err: unavailable},
		{Err: errors.Join(unavailable, context.Canceled)},
		{Err: context.Canceled},
		{Err: context.DeadlineExceeded},
		{Err: throttle.ErrState},
	} {
		d.Throttle, d.Reservation.Job = "smtp", job
		r := record(t, false)
		r.Decided(d)
		want := make(map[string]int64)
		result := prometheusWord(t, "throttle_decisions_total", "outcome", func(o throttle.Observer) { o.Decided(d) })
		if result != "booked" && result != "waiting" {
			scopes := []string{"global", "tenant"}
			if result == "invalid" { // its scopes may be none of the throttle's
				scopes = scopes[:1]
			}
			for _, scope := range scopes {
				want["throttle.name=smtp,throttle.result="+result+",throttle.scope="+scope] = 1
			}
		}
		expectValues(t, r, "throttle.jobs", want)
		inQueue := 0
		if d.Err == nil && d.Reservation.Outcome == throttle.Granted && d.Reservation.Source == throttle.FallbackClosed {
			inQueue = 2
		}
		if got := len(r.values("throttle.job.time_in_queue")); got != inQueue {
			t.Errorf("%+v: the time in queue has %d scopes, want %d", d, got, inQueue)
		}
	}
	for _, c := range []struct {
		putBack throttle.PutBack
		scope   string
	}{
		{throttle.PutBack{Reservation: throttle.Reservation{Outcome: throttle.Booked, Hold: hold}}, "tenant"},
		{throttle.PutBack{Reservation: throttle.Reservation{Outcome: throttle.Waiting}}, ""},
		{throttle.PutBack{Reservation: throttle.Reservation{Outcome: throttle.Granted}}, ""},
		{throttle.PutBack{Err: unavailable}, ""},
		{throttle.PutBack{Err: &throttle.BlockedError{Scope: "domain"}}, "domain"},
		{throttle.PutBack{Err: worker.AskedToWait("tenant", time.Minute, nil)}, "tenant"},
	} {
		c.putBack.Throttle = "smtp"
		r := record(t, false)
		r.PutBack(c.putBack)
		want := "throttle.name=smtp,throttle.reason=" + prometheusWord(t, "throttle_put_backs_total", "reason",
			func(o throttle.Observer) { o.PutBack(c.putBack) })
		if c.scope != "" {
			want += ",throttle.scope=" + c.scope
		}
		expectValues(t, r, "throttle.job.put_backs", map[string]int64{want: 1})
	}
}

// TestMetricsHaveNoOtherScopes: a job that names a scope which its throttle does not have, as by a mistake in a
// program's JobFunc, adds no attribute with that name.
func TestMetricsHaveNoOtherScopes(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(2, time.Second), false, func(t *testing.T, w *world, r *recorded) {
		for n := range 3 {
			keys := map[string]string{"tenant": "acme", fmt.Sprint("header-", n): "x"}
			job := throttle.Job{ID: "a", Weight: 1, Keys: keys}
			if _, err := w.throttle.Reserve(t.Context(), job); err == nil {
				t.Fatal("the job is valid")
			}
		}
		expectValues(t, r, "throttle.jobs", map[string]int64{
			"throttle.name=world,throttle.result=invalid,throttle.scope=global": 3})
	})
}
