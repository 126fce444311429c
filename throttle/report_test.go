package throttle_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// following are tenants of 100 a minute whose limits follow the upstream down to a tenth.
func following() []throttle.Scope {
	return []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(100)}, Floor: 0.1}}
}

// TestReport goes through what an upstream says of one tenant, in order.
func TestReport(t *testing.T) {
	t.Parallel()
	refused := throttle.Report{Refused: true}
	serves := func(units, remaining int64) throttle.Report {
		return throttle.Report{Limits: []throttle.ReportedLimit{{Units: units, Remaining: remaining}}}
	}
	with := func(r throttle.Report, change func(r *throttle.Report)) throttle.Report {
		change(&r)
		return r
	}
	startedAt := func(after time.Duration) func(r *throttle.Report) {
		return func(r *throttle.Report) { r.Started = dawn.Add(after) }
	}
	type step struct {
		at     time.Duration // after dawn
		said   throttle.Report
		served float64
		paused time.Duration // from then on
	}
	const minute = time.Minute
	for _, row := range []struct {
		name  string
		steps []step
	}{
		{"a refusal lowers, an answer raises once in a window", []step{
			{0, throttle.Report{}, 1, 0},
			{0, refused, 0.7, time.Second},
			{2 * time.Second, throttle.Report{}, 0.7, 0},
			{minute - 1, throttle.Report{}, 0.7, 0},
			{minute, throttle.Report{}, 0.8, 0},
			{minute + time.Second, throttle.Report{}, 0.8, 0},
			{2 * minute, throttle.Report{}, 0.9, 0},
			{9 * minute, throttle.Report{}, 1, 0},
			{10 * minute, throttle.Report{}, 1, 0},
		}},
		{"refusals in succession wait twice as long, down to the floor; an answer forgives them", []step{
			{0, refused, 0.7, time.Second},
			{time.Second, refused, 0.49, 2 * time.Second},
			{3 * time.Second, refused, 0.343, 4 * time.Second},
			{7 * time.Second, refused, 0.24, 8 * time.Second},
			{15 * time.Second, refused, 0.168, 16 * time.Second},
			{31 * time.Second, refused, 0.117, 32 * time.Second},
			{63 * time.Second, refused, 0.1, 64 * time.Second},
			{127 * time.Second, refused, 0.1, 128 * time.Second},
			{255 * time.Second, refused, 0.1, 256 * time.Second},
			{511 * time.Second, refused, 0.1, 300 * time.Second},
			{811 * time.Second, refused, 0.1, 300 * time.Second},
			{1111 * time.Second, throttle.Report{}, 0.2, 0},
			{1112 * time.Second, refused, 0.14, time.Second},
		}},
		{"what was asked before a refusal tells nothing new", []step{
			{time.Second, with(refused, startedAt(0)), 0.7, time.Second},
			{time.Second, with(refused, startedAt(time.Second)), 0.7, time.Second},
			{2 * time.Second, with(refused, startedAt(time.Second/2)), 0.7, 0},
			{2 * time.Second, with(throttle.Report{}, startedAt(time.Second/2)), 0.7, 0}, // forgives nothing either
			{2 * time.Second, with(refused, startedAt(time.Second+time.Microsecond)), 0.49, 2 * time.Second},
		}},
		{"it says how long it wants to be left alone", []step{
			{0, with(refused, func(r *throttle.Report) { r.RetryAfter = 20 * time.Second }), 0.7, 20 * time.Second},
			{time.Second, with(refused, func(r *throttle.Report) { r.RetryAfter = 5 * time.Second }), 0.49, 19 * time.Second},
			{20 * time.Second, with(refused, func(r *throttle.Report) { r.RetryAfter = 1000 * time.Hour }), 0.343,
				24 * time.Hour},
		}},
		{"it says what it serves: less at once, more a tenth a window", []step{
			{0, serves(60, -1), 0.6, 0},
			{0, serves(60, -1), 0.6, 0},
			{0, serves(33, -1), 0.33, 0},
			{time.Second, serves(60, -1), 0.33, 0},
			{minute, serves(60, -1), 0.43, 0},
			{2 * minute, serves(60, -1), 0.53, 0},
			{3 * minute, serves(60, -1), 0.6, 0},
			{9 * minute, serves(60, -1), 0.6, 0},
			{10 * minute, serves(math.MaxInt64, math.MaxInt64), 0.7, 0},
			{10 * minute, serves(-1, -1), 0.7, 0},
			{11 * minute, serves(0, -1), 0.1, 0},
		}},
		{"what it says explains a refusal", []step{
			{0, with(serves(60, -1), func(r *throttle.Report) { r.Refused = true }), 0.6, time.Second},
			// others had used 60
			{time.Second, with(serves(60, 0), func(r *throttle.Report) { r.Refused = true }), 0.6, 2 * time.Second},
			// that was known
			{3 * time.Second, with(serves(60, 0), func(r *throttle.Report) { r.Refused = true }), 0.42, 4 * time.Second},
		}},
		{"a day without a change ends it", []step{
			{0, refused, 0.7, time.Second},
			{24*time.Hour - 1000, with(refused, startedAt(0)), 0.7, 0},
			{24 * time.Hour, with(refused, startedAt(0)), 0.7, time.Second},
		}},
		{"other windows and running limits are left out", []step{
			{0, throttle.Report{Limits: []throttle.ReportedLimit{{Window: time.Hour, Units: 1, Remaining: 0}}}, 1, 0},
			{0, throttle.Report{Limits: []throttle.ReportedLimit{{Window: minute, Units: 50, Remaining: -1}}}, 0.5, 0},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				s := newScripted(newThrottle(t, client, following(), nil))
				for i, step := range row.steps {
					now := dawn.Add(step.at).Truncate(time.Microsecond)
					got, err := s.Report(now, "tenant", "acme", step.said)
					if err != nil {
						t.Fatal(err)
					}
					paused := time.Duration(0)
					if !got.Paused.IsZero() {
						paused = got.Paused.Sub(now)
					}
					if got.Served != step.served || paused != step.paused {
						t.Fatalf("step %d: serves %v, paused %s; want %v, %s", i, got.Served, paused, step.served, step.paused)
					}
					usage, err := s.Usage(now, "tenant", "acme")
					if err != nil || usage.Served != step.served || !usage.Paused.Equal(got.Paused) {
						t.Fatalf("step %d: usage says it serves %v, paused until %s; %v", i, usage.Served, usage.Paused, err)
					}
				}
			})
		})
	}
}

// TestReportOfARamp: what an upstream says of a ramp is held against the step in force.
func TestReportOfARamp(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		begins := time.Date(dawn.Year(), dawn.Month(), dawn.Day()+1, 0, 0, 0, 0, time.UTC)
		ramp := throttle.Ramp("10 20 100/day from " + begins.Format(time.DateOnly) + " @UTC")
		s := newScripted(newThrottle(t, client, []throttle.Scope{
			{Name: "tenant", Limits: []throttle.Limit{ramp}, Floor: 0.1}}, nil))
		for _, step := range []struct {
			day, units, remaining int64
			served                float64
			used                  int64
		}{
			{-1, 5, 0, 1, 0}, // no step
			{0, 10, -1, 1, 0},
			{0, 5, 3, 0.5, 2}, // others have used 2
			{1, 6, -1, 0.3, 0},
		} {
			now := begins.AddDate(0, 0, int(step.day))
			got, err := s.Report(now, "tenant", "acme", throttle.Report{Limits: []throttle.ReportedLimit{
				{Units: step.units, Remaining: step.remaining}}})
			if err != nil || got.Served != step.served {
				t.Errorf("%+v: serves %v, %v", step, got.Served, err)
			}
			usage, err := s.Usage(now, "tenant", "acme")
			if err != nil || usage.Limits[0].Used != step.used {
				t.Errorf("%+v: usage %+v, %v", step, usage.Limits, err)
			}
		}
	})
}

// TestReportHoldsJobsBack: no window of a tenant with a lower served share has more than that share
// allows; what others have used counts; the units of the limit come back. Other tenants go on.
func TestReportHoldsJobsBack(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client, following(), nil))
		n := 0
		// granted is how many jobs of one unit start now.
		granted := func(now time.Time, tenant string) (started int) {
			for ; started < 200; started++ {
				n++
				r, err := s.Reserve(now, throttle.Job{ID: fmt.Sprint(n), Weight: 1, Keys: of(tenant)})
				if err != nil {
					t.Fatal(err)
				}
				if r.Outcome != throttle.Granted {
					if _, err := s.Cancel(now, r.Job); err != nil {
						t.Fatal(err)
					}
					return started
				}
			}
			return started
		}
		report := func(now time.Time, units, remaining int64) {
			if _, err := s.Report(now, "tenant", "acme",
				throttle.Report{Limits: []throttle.ReportedLimit{{Units: units, Remaining: remaining}}}); err != nil {
				t.Fatal(err)
			}
		}
		report(dawn, 60, -1)
		if got := granted(dawn, "acme"); got != 60 {
			t.Errorf("%d start where 60 are served", got)
		}
		if got := granted(dawn, "other"); got != 100 {
			t.Errorf("%d of another tenant start, want 100", got)
		}
		next := dawn.Add(time.Minute)
		report(next, 60, 25) // others have used 35
		if got := granted(next, "acme"); got != 60-35 {
			t.Errorf("%d start where 60 are served and others have used 35", got)
		}
		report(next, 60, 0) // as is known by now
		later := next.Add(time.Minute)
		report(later, 100, 100)
		if got := granted(later, "acme"); got != 70 {
			t.Errorf("%d start where 70 are served", got)
		}
	})
}

// TestReportAndHeavyJobs: a job that weighs more than the served units starts when nothing else
// counts, alone; a job that weighs more than the limit never starts.
func TestReportAndHeavyJobs(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client, following(), nil))
		job := func(id string, weight int64) throttle.Job {
			return throttle.Job{ID: id, Weight: weight, Keys: of("acme")}
		}
		if _, err := s.Reserve(dawn, job("light", 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Report(dawn, "tenant", "acme",
			throttle.Report{Limits: []throttle.ReportedLimit{{Units: 20, Remaining: -1}}}); err != nil {
			t.Fatal(err)
		}
		heavy, err := s.Reserve(dawn, job("heavy", 90))
		if want := dawn.Add(time.Minute); err != nil || heavy.Outcome != throttle.Booked || !heavy.Start.Equal(want) {
			t.Fatalf("a job of 90 got %+v, %v; want its slot at %s", heavy, err, want)
		}
		if light, err := s.Reserve(dawn.Add(time.Second), job("beside it", 1)); err != nil ||
			!light.Start.Equal(dawn.Add(2*time.Minute)) {
			t.Errorf("a job behind it got %+v, %v; want its slot a minute later", light, err)
		}
		var never *throttle.NeverFitsError
		if _, err := s.Reserve(dawn, job("too heavy", 101)); !errors.As(err, &never) {
			t.Errorf("a job of 101 under a limit of 100 got %v", err)
		}
	})
}

// TestReportIsTakenBack: ResetLimits ends the effect of reports for one key.
func TestReportIsTakenBack(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client, following(), nil))
		for _, tenant := range []string{"acme", "other"} {
			if _, err := s.Report(dawn, "tenant", tenant,
				throttle.Report{Limits: []throttle.ReportedLimit{{Units: 20, Remaining: -1}}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.ResetLimits(dawn, "tenant", "acme"); err != nil {
			t.Fatal(err)
		}
		for tenant, want := range map[string]float64{"acme": 1, "other": 0.2} {
			if usage, err := s.Usage(dawn, "tenant", tenant); err != nil || usage.Served != want {
				t.Errorf("%s is served %v, %v; want %v", tenant, usage.Served, err, want)
			}
		}
	})
}

// TestReportLeavesWhatIsLeft: if an upstream serves more than the limit, only the units that it says
// are left bound the starts.
func TestReportLeavesWhatIsLeft(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client, following(), nil))
		for _, row := range []struct{ remaining, used int64 }{{400, 0}, {100, 0}, {40, 60}, {50, 60}, {0, 100}} {
			said := throttle.Report{Limits: []throttle.ReportedLimit{{Units: 1000, Remaining: row.remaining}}}
			if _, err := s.Report(dawn, "tenant", "acme", said); err != nil {
				t.Fatal(err)
			}
			usage, err := s.Usage(dawn, "tenant", "acme")
			if err != nil || usage.Served != 1 || usage.Limits[0].Used != row.used {
				t.Errorf("%d left of 1000: %d of 100 used, %v served, %v; want %d", row.remaining,
					usage.Limits[0].Used, usage.Served, err, row.used)
			}
		}
	})
}

// TestReportWithoutLimits: the key of a scope that limits nothing closes all the same.
func TestReportWithoutLimits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client, []throttle.Scope{{Name: "tenant", Floor: 0.5}}, nil))
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			got, err := s.Report(dawn, "tenant", "acme", throttle.Report{Refused: true})
			if err != nil || !got.Paused.Equal(dawn.Add(pause)) {
				t.Errorf("paused until %s, %v; want for %s", got.Paused, err, pause)
			}
		}
	})
}

// TestReportsOfManyProcesses: what one process reports is in force for another at its next
// decision, and both know the same.
func TestReportsOfManyProcesses(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		one := newThrottle(t, client, following(), nil)
		two := sameAs(t, client, one, following(), throttle.Options{})
		if _, err := one.Report(t.Context(), "tenant", "acme",
			throttle.Report{Limits: []throttle.ReportedLimit{{Units: 50, Remaining: 1}}}); err != nil {
			t.Fatal(err)
		}
		first := reserve(t, two, throttle.Job{ID: "first", Weight: 1, Keys: of("acme")})
		second := reserve(t, two, throttle.Job{ID: "second", Weight: 1, Keys: of("acme")})
		if first.Outcome != throttle.Granted || second.Outcome != throttle.Booked {
			t.Errorf("of one unit that is left %s and %s were made", first.Outcome, second.Outcome)
		}
		again, err := two.Report(t.Context(), "tenant", "acme", throttle.Report{Refused: true, Started: first.Start})
		if err != nil || again.Before != 0.5 || again.Served != 0.35 {
			t.Errorf("the other process' report: %+v, %v", again, err)
		}
		late, err := one.Report(t.Context(), "tenant", "acme", throttle.Report{Refused: true, Started: first.Start})
		if err != nil || late.Served != 0.35 {
			t.Errorf("the first one's refusal of the same time: %+v, %v", late, err)
		}
	})
}

// TestReportsOfOneBurst: refusals of calls that many workers of two processes made at the same
// time lower the served share once.
func TestReportsOfOneBurst(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		one := newThrottle(t, client, following(), nil)
		two := sameAs(t, client, one, following(), throttle.Options{})
		var began time.Time
		for i := range 40 {
			began = reserve(t, one, throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of("acme")}).Start
		}
		var refused sync.WaitGroup
		for i := range 40 {
			refused.Go(func() {
				th := []*throttle.Throttle{one, two}[i%2]
				if _, err := th.Report(t.Context(), "tenant", "acme", throttle.Report{Refused: true, Started: began}); err != nil {
					t.Error(err)
				}
			})
		}
		refused.Wait()
		for _, th := range []*throttle.Throttle{one, two} {
			if u, err := inspect.New(th).Usage(t.Context(), "tenant", "acme"); err != nil || u.Served != 0.7 {
				t.Errorf("served %g (%v), want 0.7", u.Served, err)
			}
		}
	})
}

// TestReportInShadow: in a scope in shadow, a job's answer says what it would have waited for, and
// the job does not wait.
func TestReportInShadow(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := following()
		scopes[0].Mode = throttle.Shadow
		th := newThrottle(t, client, scopes, nil)
		if _, err := th.Report(t.Context(), "tenant", "acme",
			throttle.Report{Limits: []throttle.ReportedLimit{{Units: 50, Remaining: -1}}}); err != nil {
			t.Fatal(err)
		}
		for i := range 51 {
			r := reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of("acme")})
			if r.Outcome != throttle.Granted || (r.Shadow != nil) != (i == 50) {
				t.Errorf("job %d: %s, shadow %+v; want only the last beyond what is served", i, r.Outcome, r.Shadow)
			}
		}
	})
}

// TestReportRefusesWhatIsWrong: a wrong report gets a typed error, and nothing is written.
func TestReportRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	client := away(t)
	for _, floor := range []float64{-0.1, 0.0001, 1, 1.5, math.NaN(), math.Inf(1)} {
		scopes := following()
		scopes[0].Floor = floor
		var option *throttle.OptionError
		if _, err := throttle.New("t", client, scopes, nil); !errors.As(err, &option) || option.Field != "Scope.Floor" {
			t.Errorf("a floor of %v: got %v", floor, err)
		}
	}
	th := newThrottle(t, client, append(following(), throttle.Scope{Name: throttle.Global}), nil)
	var option *throttle.OptionError
	if _, err := th.Report(t.Context(), throttle.Global, "", throttle.Report{}); !errors.As(err, &option) ||
		option.Field != "Scope.Floor" {
		t.Errorf("a scope without a floor: got %v", err)
	}
	for name, said := range map[string]throttle.Report{
		"RetryAfter":     {RetryAfter: -1},
		"Limits":         {Limits: make([]throttle.ReportedLimit, 17)},
		"Limits: window": {Limits: []throttle.ReportedLimit{{Window: -1}}},
		"Limits: units":  {Limits: []throttle.ReportedLimit{{Units: -2}}},
		"Limits: left":   {Limits: []throttle.ReportedLimit{{Remaining: -2}}},
	} {
		var invalid *throttle.ArgumentError
		if _, err := th.Report(t.Context(), "tenant", "acme", said); !errors.As(err, &invalid) ||
			len(name) < len(invalid.Argument) || name[:len(invalid.Argument)] != invalid.Argument {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestReportNeverExceedsTheLimits starts what has room while an upstream says whatever it
// likes: no window has more than was configured.
func TestReportNeverExceedsTheLimits(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client, following(), nil))
		var starts []throttletest.Start
		now := dawn
		for n := range 600 {
			now = now.Add(time.Duration(n%7) * 200 * time.Millisecond)
			job := throttle.Job{ID: fmt.Sprint(n), Weight: []int64{1, 7, 40}[n%3], Keys: of("acme")}
			r, err := s.Reserve(now, job)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome == throttle.Granted {
				starts = append(starts, throttletest.Start{At: r.Start, Weight: job.Weight, Keys: job.Keys})
			} else if _, err := s.Cancel(now, job); err != nil {
				t.Fatal(err)
			}
			said := throttle.Report{Refused: n%50 == 49, RetryAfter: time.Millisecond,
				Limits: []throttle.ReportedLimit{{Units: int64(n * 37 % 1000), Remaining: int64(n*91%2000) - 1}}}
			if _, err := s.Report(now, "tenant", "acme", said); err != nil {
				t.Fatal(err)
			}
		}
		if len(starts) < 20 {
			t.Errorf("only %d have started", len(starts))
		}
		for _, over := range throttletest.Check(following(), starts) {
			t.Error(over)
		}
	})
}

// TestReportBesideAMargin: an upstream names its window and its period as the limits do, of which a margin lengthens
// only the window.
func TestReportBesideAMargin(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		limits := []throttle.Limit{{Units: 50, Window: 55 * time.Second}, throttle.PerMinute(60), throttle.PerDay(1000),
			throttle.PerCalendarDay(100, "UTC")}
		s := newScripted(newThrottle(t, client, []throttle.Scope{
			{Name: "tenant", Limits: limits, Floor: 0.1, Margin: 5 * time.Second}}, nil))
		for _, row := range []struct {
			key    string
			window time.Duration
			used   []int64 // of each limit
		}{
			{"shortest", 0, []int64{10, 0, 0, 0}},
			{"shorter than a microsecond", time.Nanosecond, []int64{0, 0, 0, 0}},
			{"window", time.Minute, []int64{0, 20, 0, 0}},
			{"day", 24 * time.Hour, []int64{0, 0, 960, 60}},
		} {
			said := throttle.Report{Limits: []throttle.ReportedLimit{{Window: row.window, Units: -1, Remaining: 40}}}
			if _, err := s.Report(dawn, "tenant", row.key, said); err != nil {
				t.Fatal(err)
			}
			usage, err := s.Usage(dawn, "tenant", row.key)
			if err != nil {
				t.Fatal(err)
			}
			for i, limit := range usage.Limits {
				if limit.Used != row.used[i] {
					t.Errorf("%s: %d of %s are used, want %d", row.key, limit.Used, limit.Limit, row.used[i])
				}
			}
		}
	})
}
