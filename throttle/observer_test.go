package throttle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// told keeps the events that an observer gets from one goroutine.
type told struct {
	deaf
	decisions []throttle.Decision
	outages   []throttle.Outage
	calls     []throttle.ScriptCall
	starts    []throttle.Lateness
	putBacks  []throttle.PutBack
}

func (o *told) Decided(d throttle.Decision) { o.decisions = append(o.decisions, d) }

func (o *told) FellBack(f throttle.Outage) { o.outages = append(o.outages, f) }

func (o *told) Called(c throttle.ScriptCall) { o.calls = append(o.calls, c) }

func (o *told) Started(l throttle.Lateness) { o.starts = append(o.starts, l) }

func (o *told) PutBack(p throttle.PutBack) { o.putBacks = append(o.putBacks, p) }

func (o *told) scripts() []string {
	return each(o.calls, func(c throttle.ScriptCall) string { return c.Script })
}

func (o *told) failures() []string {
	return each(o.calls, func(c throttle.ScriptCall) string { return c.Failure })
}

func (o *told) outcomes() []throttle.Outcome {
	return each(o.decisions, func(d throttle.Decision) throttle.Outcome { return d.Reservation.Outcome })
}

func (o *told) sources() []throttle.Fallback {
	return each(o.decisions, func(d throttle.Decision) throttle.Fallback { return d.Reservation.Source })
}

func each[E, T any](all []E, take func(E) T) []T {
	taken := make([]T, 0, len(all))
	for _, e := range all {
		taken = append(taken, take(e))
	}
	return taken
}

// observed returns a throttle on a miniredis, its observer and the miniredis.
func observed(t *testing.T, opts throttle.Options) (*throttle.Throttle, *told, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	observer := new(told)
	opts.Observer = observer
	return newThrottle(t, client, tenantAndGlobal(throttle.PerMinute(2), throttle.PerMinute(3)), &opts), observer, server
}

func TestObserverIsToldOfDecisions(t *testing.T) {
	t.Parallel()
	th, observer, _ := observed(t, throttle.Options{})
	if th.Inside(seam.Key{}).Options().Observer.PutBack(throttle.PutBack{}); len(observer.putBacks) != 1 {
		t.Error("the Observer received no PutBack of package worker")
	}
	for i, job := range []throttle.Job{
		{ID: "a", Weight: 2, Keys: of("acme")},
		{ID: "b", Weight: 1, Keys: of("acme")},
		{ID: "c", Weight: 1, Keys: of("acme"), Deadline: time.Now()},
		{ID: "d", Weight: 9, Keys: of("acme")},
		{ID: "e", Weight: -1, Keys: of("acme")},
	} {
		r, err := th.Reserve(t.Context(), job)
		got := observer.decisions[i]
		if len(observer.decisions) != i+1 || got.Throttle != th.Name() || !errors.Is(got.Err, err) {
			t.Fatalf("job %s: told %+v, got error %v", job.ID, observer.decisions, err)
		}
		if err == nil && !cmp.Equal(got.Reservation, r, whole) ||
			err != nil && !cmp.Equal(got.Reservation, throttle.Reservation{Job: job}, whole) {
			t.Errorf("job %s: told %+v, got %+v", job.ID, got.Reservation, r)
		}
		if got.Took <= 0 {
			t.Errorf("job %s: took %s", job.ID, got.Took)
		}
	}
	// An invalid job is refused without a call.
	if diff := cmp.Diff([]string{"reserve", "reserve", "reserve", "reserve"}, observer.scripts()); diff != "" {
		t.Error("scripts", diff)
	}
	if _, err := th.Peek(t.Context(), throttle.Job{ID: "a", Weight: 1, Keys: of("acme")}); err != nil {
		t.Fatal(err)
	}
	if len(observer.decisions) != 5 || observer.scripts()[4] != "reserve" {
		t.Errorf("Peek: %d decisions, scripts %v", len(observer.decisions), observer.scripts())
	}
}

func TestObserverIsToldOfFallbacks(t *testing.T) {
	t.Parallel()
	const granted, none = throttle.Granted, throttle.Outcome(0)
	for _, row := range []struct {
		name     string
		opts     throttle.Options
		answered []throttle.Fallback
		outcomes []throttle.Outcome
		sources  []throttle.Fallback
	}{
		{"closed", throttle.Options{},
			[]throttle.Fallback{throttle.FallbackClosed, throttle.FallbackClosed},
			[]throttle.Outcome{none, none}, []throttle.Fallback{throttle.FallbackClosed, throttle.FallbackClosed}},
		{"open", throttle.Options{Fallback: throttle.FallbackOpen},
			[]throttle.Fallback{throttle.FallbackOpen, throttle.FallbackOpen},
			[]throttle.Outcome{granted, granted}, []throttle.Fallback{throttle.FallbackOpen, throttle.FallbackOpen}},
		{"local", throttle.Options{Fallback: throttle.FallbackLocal, LocalShare: 1},
			[]throttle.Fallback{throttle.FallbackLocal, throttle.FallbackClosed},
			[]throttle.Outcome{granted, none}, []throttle.Fallback{throttle.FallbackLocal, throttle.FallbackClosed}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.opts.BreakAfter, row.opts.BreakPeriod = 1, time.Hour
			th, observer, server := observed(t, row.opts)
			server.SetError("OOM command not allowed")
			for _, id := range []string{"a", "b"} {
				_, _ = th.Reserve(t.Context(), throttle.Job{ID: id, Weight: 1, Keys: of("acme")})
			}
			want := []throttle.Outage{
				{Throttle: th.Name(), Failure: "oom", Answered: row.answered[0]},
				{Throttle: th.Name(), Failure: "breaker", Answered: row.answered[1]},
			}
			if diff := cmp.Diff(want, observer.outages); diff != "" {
				t.Error("outages", diff)
			}
			if diff := cmp.Diff(row.outcomes, observer.outcomes()); diff != "" {
				t.Error("outcomes", diff)
			}
			if diff := cmp.Diff(row.sources, observer.sources()); diff != "" {
				t.Error("sources", diff)
			}
			// The second time Redis was not called.
			if diff := cmp.Diff([]string{"oom"}, observer.failures()); diff != "" {
				t.Error("calls", diff)
			}
		})
	}
}

func TestObserverIsToldOfStarts(t *testing.T) {
	t.Parallel()
	th, observer, _ := observed(t, throttle.Options{})
	r, err := th.Wait(t.Context(), throttle.Job{ID: "a", Weight: 1, Keys: of("acme")})
	if err != nil {
		t.Fatal(err)
	}
	if len(observer.starts) != 1 || !cmp.Equal(observer.starts[0].Reservation, r, whole) ||
		observer.starts[0].Late < 0 || observer.starts[0].Throttle != th.Name() {
		t.Errorf("told %+v", observer.starts)
	}
}

// fixedReply stands for a Redis that answers every call at once with the same reply.
type fixedReply struct {
	redis.Scripter
	reply *redis.Cmd
}

func (f fixedReply) EvalSha(context.Context, string, []string, ...any) *redis.Cmd { return f.reply }

// TestObserverAllocatesNothing: Reserve allocates no more with an observer than without.
func TestObserverAllocatesNothing(t *testing.T) {
	// Not parallel: AllocsPerRun counts the allocations of all goroutines.
	reply := redis.NewCmdResult("1000 0\n1 1000 0 0", nil)
	allocations := func(observer throttle.Observer) float64 {
		th := newThrottle(t, fixedReply{reply: reply}, roomy, &throttle.Options{Observer: observer})
		job := throttle.Job{ID: "a", Weight: 1, Keys: of("acme"), Nonce: "n"}
		return testing.AllocsPerRun(500, func() {
			if _, err := th.Reserve(context.Background(), job); err != nil {
				t.Fatal(err)
			}
		})
	}
	without, with := allocations(nil), allocations(deaf{})
	if with != without {
		t.Errorf("%v allocations with an observer, %v without", with, without)
	}
}

// deaf is an observer that ignores all events.
type deaf struct{}

func (deaf) Decided(throttle.Decision)   {}
func (deaf) FellBack(throttle.Outage)    {}
func (deaf) Called(throttle.ScriptCall)  {}
func (deaf) Started(throttle.Lateness)   {}
func (deaf) Settled(throttle.Settlement) {}
func (deaf) Paused(throttle.Pause)       {}
func (deaf) Adapted(throttle.Adaptation) {}
func (deaf) PutBack(throttle.PutBack)    {}
func (deaf) Ended(throttle.Ending)       {}
