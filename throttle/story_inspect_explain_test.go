package throttle_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// threeScopes have two limits each.
var threeScopes = []throttle.Scope{
	{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(200, time.Second), throttle.PerDay(1_000_000)}},
	{Name: "tenant", Limits: []throttle.Limit{throttle.Per(2, 10*time.Second), throttle.PerDay(50_000)}},
	{Name: "domain", Limits: []throttle.Limit{throttle.PerSecond(20), throttle.PerHour(5000)}},
}

// explained returns the explanation of a story's job, and checks that explaining changed
// nothing and that the text fits a screen.
func explained(t *testing.T, client *redis.Client, s *scripted, at time.Duration,
	job throttle.Job) (e inspect.Explanation) {
	t.Helper()
	s.at(dawn.Add(at))
	unchanged(t, client, s.throttle, func() {
		var err error
		if e, err = inspect.New(s.throttle).Explain(t.Context(), job); err != nil {
			t.Fatalf("Explain %s: %v", job.ID, err)
		}
	})
	lines := strings.Split(strings.TrimSuffix(e.String(), "\n"), "\n")
	if len(lines) > 25 {
		t.Errorf("%d lines:\n%s", len(lines), e)
	}
	for _, line := range lines {
		if columns := utf8.RuneCountInString(line); columns > 120 {
			t.Errorf("%d columns: %s", columns, line)
		}
	}
	return e
}

func reads(t *testing.T, what string, got inspect.Explanation, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestExplain goes through the life of jobs and compares the texts for people.
func TestExplain(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, threeScopes, throttle.Options{})
		job := func(id string) throttle.Job {
			return throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": "acme", "domain": "gmail.com"}}
		}
		comes(t, s, 0, job("granted"), throttle.Granted)
		comes(t, s, 0, job("another"), throttle.Granted)
		reads(t, "granted", explained(t, client, s, 500*time.Millisecond, job("granted")), `
job granted at 2027-01-15 08:00:00.500 UTC
  nothing is known of it: it never asked, was given back, or has started
  domain "gmail.com"       20/1s                   2 used        0 booked  room now
  domain "gmail.com"       5000/1h                 2 used        0 booked  room now
  global                   200/1s                  2 used        0 booked  room now
  global                   1000000/24h             2 used        0 booked  room now
  tenant "acme"            2/10s                   2 used        0 booked  room in 9.5s
  tenant "acme"            50000/24h               2 used        0 booked  room now
`)
		comes(t, s, 9500*time.Millisecond, job("booked"), throttle.Booked)
		comes(t, s, 9500*time.Millisecond, job("booked too"), throttle.Booked)
		comes(t, s, 9600*time.Millisecond, job("waits"), throttle.Waiting)
		comes(t, s, 9700*time.Millisecond, job("waits too"), throttle.Waiting)
		drain(t, s, dawn.Add(9700*time.Millisecond))
		booked := explained(t, client, s, 9700*time.Millisecond, job("booked"))
		reads(t, "booked", booked, `
job booked at 2027-01-15 08:00:09.700 UTC
  booked for 2027-01-15 08:00:10.000 UTC (in 300ms)
  domain "gmail.com"       20/1s                   0 used        2 booked  room now
  domain "gmail.com"       5000/1h                 2 used        2 booked  room now
  global                   200/1s                  0 used        2 booked  room now
  global                   1000000/24h             2 used        2 booked  room now
  tenant "acme"            2/10s                   2 used        2 booked  room in 10.3s
  tenant "acme"            50000/24h               2 used        2 booked  room now
`)
		if !booked.Slot.Equal(dawn.Add(10*time.Second)) || !booked.Expected.Equal(booked.Slot) {
			t.Errorf("booked: got %+v", booked)
		}
		waits := explained(t, client, s, 9800*time.Millisecond, job("waits too"))
		if lines := strings.Split(waits.String(), "\n"); lines[1] !=
			"  in line since 2027-01-15 08:00:09.700 UTC, 1 of 2 jobs before it, expected to start in 10.2s" ||
			lines[2] != `  its lane stands under tenant "acme", which is looked at again in 9.2s` {
			t.Errorf("in line: got\n%s", waits)
		}
		if waits.Before != 1 || waits.Waiting != 2 ||
			!waits.Expected.Equal(dawn.Add(20*time.Second)) {
			t.Errorf("in line: got %+v", waits)
		}
		if diff := cmp.Diff(&throttle.Hold{Scope: "tenant", Key: "acme"}, waits.Blocked); diff != "" {
			t.Errorf("it stands under (-want +got):\n%s", diff)
		}
		nobody := throttle.Job{ID: "nobody", Weight: 1, Keys: map[string]string{"tenant": "new", "domain": "web.de"}}
		reads(t, "nobody", explained(t, client, s, 9800*time.Millisecond, nobody), `
job nobody at 2027-01-15 08:00:09.800 UTC
  nothing is known of it: it never asked, was given back, or has started
  domain "web.de"          20/1s                   0 used        0 booked  room now
  domain "web.de"          5000/1h                 0 used        0 booked  room now
  global                   200/1s                  0 used        2 booked  room now
  global                   1000000/24h             2 used        2 booked  room now
  tenant "new"             2/10s                   0 used        0 booked  room now
  tenant "new"             50000/24h               0 used        0 booked  room now
`)
		if pulled, err := s.Pull(dawn.Add(16 * time.Second)); err != nil || len(pulled.Overdue) != 2 {
			t.Fatalf("%d are overdue, %v; want 2", len(pulled.Overdue), err)
		}
		overdue := explained(t, client, s, 16*time.Second, job("booked"))
		if line := strings.Split(overdue.String(), "\n")[1]; line !=
			"  it did not come to its slot; when it asks again, it comes to the front of its lane" || overdue.Arrived.IsZero() {
			t.Errorf("overdue: got %+v\n%s", overdue, line)
		}
	})
}

// TestExplainHeavy: a heavy job is booked at its place, however far ahead, and another one waits
// under the scope key until that has come near.
func TestExplainHeavy(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.Per(100, 10*time.Second), throttle.Per(10, 10*time.Second)),
			throttle.Options{})
		job := func(tenant string) throttle.Job {
			return throttle.Job{ID: "heavy " + tenant, Weight: 9, Keys: of(tenant)}
		}
		comes(t, s, 0, throttle.Job{ID: "first", Weight: 5, Keys: of("a")}, throttle.Granted)
		comes(t, s, time.Second, job("b"), throttle.Waiting)
		comes(t, s, time.Second+time.Millisecond, job("c"), throttle.Waiting)
		if booked := drain(t, s, dawn.Add(2*time.Second)); len(booked) != 0 {
			t.Fatalf("booked %v", booked)
		}
		first := explained(t, client, s, 3*time.Second, job("b"))
		if !first.Slot.Equal(dawn.Add(10*time.Second)) || !first.Expected.Equal(first.Slot) || first.Blocked != nil ||
			!strings.Contains(first.String(), "\n  booked for 2027-01-15 08:00:10.000 UTC (in 7s)\n") {
			t.Errorf("the first: got %+v\n%s", first, first)
		}
		second := explained(t, client, s, 3*time.Second, job("c"))
		if !second.Slot.IsZero() || !second.Expected.Equal(dawn.Add(20*time.Second)) ||
			!cmp.Equal(second.Blocked, &throttle.Hold{Scope: throttle.Global}) ||
			!strings.Contains(second.String(), "\n  its lane stands under global, which is looked at again in 6s\n") {
			t.Errorf("the second: got %+v\n%s", second, second)
		}
	})
}

// TestExplainControls: what is paused, closed or set at run time, and what a shadow
// only counts.
func TestExplainControls(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, threeScopes, throttle.Options{})
		job := throttle.Job{ID: "waits", Weight: 1, Keys: map[string]string{"tenant": "acme", "domain": "gmail.com"}}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Pause(dawn, "domain", "gmail.com", dawn.Add(time.Hour))
		do(err)
		comes(t, s, 0, job, throttle.Waiting)
		reads(t, "paused", explained(t, client, s, time.Second, job), `
job waits at 2027-01-15 08:00:01.000 UTC
  in line since 2027-01-15 08:00:00.000 UTC, 0 of 1 jobs before it, expected to start in 59m59s
  its lane stands under domain "gmail.com", which is looked at again in 4m59s
  domain "gmail.com" paused until 2027-01-15 09:00:00.000 UTC (in 59m59s)
  domain "gmail.com"       20/1s                   0 used        0 booked  room now
  domain "gmail.com"       5000/1h                 0 used        0 booked  room now
  global                   200/1s                  0 used        0 booked  room now
  global                   1000000/24h             0 used        0 booked  room now
  tenant "acme"            2/10s                   0 used        0 booked  room now
  tenant "acme"            50000/24h               0 used        0 booked  room now
`)
		do(s.SetLimits(s.now(), "tenant", "acme", []throttle.Limit{throttle.PerHour(0)}, time.Time{}))
		do(s.SetLimits(s.now(), "domain", "", []throttle.Limit{throttle.PerMinute(30)}, time.Time{}))
		do(s.SetMode(s.now(), "domain", throttle.Shadow, time.Time{}))
		do(s.SetMode(s.now(), throttle.Global, throttle.Off, time.Time{}))
		drain(t, s, dawn.Add(2*time.Second))
		reads(t, "closed, set and shadowed", explained(t, client, s, 2*time.Second, job), `
job waits at 2027-01-15 08:00:02.000 UTC
  in line since 2027-01-15 08:00:00.000 UTC, 0 of 1 jobs before it, expected to start never, unless limits change
  its lane stands under tenant "acme", which is looked at again in 5m
  domain "gmail.com" paused until 2027-01-15 09:00:00.000 UTC (in 59m58s), shadow
  domain "gmail.com"       30/1m                   0 used        0 booked  nothing is delayed, set for the scope, shadow
  global                   200/1s                  0 used        0 booked  nothing is delayed, off
  global                   1000000/24h             0 used        0 booked  nothing is delayed, off
  tenant "acme"            0/1h                    0 used        0 booked  closed, set for the key
`)
	})
}

// TestExplainServed: for a scope key of which the upstream serves less, the text has the served
// share, and the expected start takes it into account.
func TestExplainServed(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(1000)}, Floor: 0.001},
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(10, 10*time.Second)}, Floor: 0.1},
		}, throttle.Options{})
		job := func(id string) throttle.Job {
			return throttle.Job{ID: id, Weight: 3, Keys: map[string]string{"tenant": "acme"}}
		}
		for scope, told := range map[string]throttle.ReportedLimit{throttle.Global: {Units: 343, Remaining: -1},
			"tenant": {Units: 6, Remaining: -1}} {
			if _, err := s.Report(dawn, scope, job("").Keys[scope],
				throttle.Report{Limits: []throttle.ReportedLimit{told}}); err != nil {
				t.Fatal(err)
			}
		}
		comes(t, s, 0, job("a"), throttle.Granted)
		comes(t, s, 0, job("b"), throttle.Granted)
		comes(t, s, 0, job("waits"), throttle.Waiting) // of 10 units there would be 4
		reads(t, "served less", explained(t, client, s, time.Second, job("waits")), `
job waits at 2027-01-15 08:00:01.000 UTC
  in line since 2027-01-15 08:00:00.000 UTC, 0 of 1 jobs before it, expected to start in 9s
  its lane stands under tenant "acme", which is looked at again in 8s
  global is served 34.3 % of its limits by the upstream
  global                   1000/1m                 6 used        0 booked  room now
  tenant "acme" is served 60 % of its limits by the upstream
  tenant "acme"            10/10s                  6 used        0 booked  room in 9s
`)
		if e := explained(t, client, s, time.Second, job("waits")); e.Usage[0].Served != 0.343 || e.Usage[1].Served != 0.6 {
			t.Errorf("served %v and %v, want 0.343 and 0.6", e.Usage[0].Served, e.Usage[1].Served)
		}
	})
}

// TestExplainFitsAScreen: the text fits a screen with the longest of all values.
func TestExplainFitsAScreen(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{
			{Name: throttle.Global,
				Limits: []throttle.Limit{{Units: 90_000_000, Window: 6 * time.Hour, Precision: 90 * time.Second},
					throttle.PerDay(90_000_000)}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(2, 10*time.Second), throttle.PerDay(50_000)}},
			{Name: "domain", Limits: []throttle.Limit{throttle.PerSecond(20), throttle.PerHour(5000)}},
		}
		s := nearly(t, client, scopes, throttle.Options{})
		job := throttle.Job{
			ID: "asynq:default/00000000-0000-7000-8000-000000000000/0", Weight: 1,
			Keys: map[string]string{"tenant": strings.Repeat("ünter", 40), "domain": strings.Repeat("x", 300)},
		}
		if err := s.SetLimits(dawn, throttle.Global, "", scopes[0].Limits, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := s.SetMode(dawn, "", throttle.Shadow, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := s.SetMode(dawn, "tenant", throttle.Enforce, time.Time{}); err != nil {
			t.Fatal(err)
		}
		comes(t, s, 0, throttle.Job{ID: "first", Weight: 2, Keys: job.Keys}, throttle.Granted)
		comes(t, s, 0, job, throttle.Waiting)
		if e := explained(t, client, s, 1234567*time.Microsecond, job); len(e.Usage) != 3 {
			t.Errorf("%d scope keys are told, want 3:\n%s", len(e.Usage), e)
		}
		comes(t, s, 9500*time.Millisecond, throttle.Job{ID: "new", Weight: 1, Keys: job.Keys}, throttle.Waiting)
		drain(t, s, dawn.Add(9500*time.Millisecond))
		if e := explained(t, client, s, 9567891*time.Microsecond, job); e.Slot.IsZero() {
			t.Errorf("it is not booked:\n%s", e)
		}
	})
}

// TestExplainRefuses: Explain refuses the jobs that Peek refuses, except for their weight.
func TestExplainRefuses(t *testing.T) {
	t.Parallel()
	s := nearly(t, miniClient(t), tenantAndGlobal(throttle.PerSecond(1), throttle.PerSecond(1)), throttle.Options{})
	var invalid *throttle.InvalidJobError
	for _, job := range []throttle.Job{{Weight: 1, Keys: of("a")}, {ID: "a", Keys: of("a")}, {ID: "a", Weight: 1}} {
		if got, err := inspect.New(s.throttle).Explain(t.Context(), job); !errors.As(err, &invalid) ||
			!cmp.Equal(got, inspect.Explanation{}) {
			t.Errorf("%+v: got %v, %v", job, got, err)
		}
	}
	s.at(dawn)
	heavy, err := inspect.New(s.throttle).Explain(t.Context(), throttle.Job{ID: "heavy", Weight: 9, Keys: of("a")})
	if err != nil || !strings.Contains(fmt.Sprint(heavy), "nothing is known of it") {
		t.Errorf("heavier than its limits: got %v, %v", heavy, err)
	}
}
