package throttle_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

const day = 24 * time.Hour

// The largest that limits, waits and shares may be, and two defaults.
const (
	maxUnits          = int64(1) << 53
	maxWindow         = 400 * day
	maxShare          = 1_000_000
	defaultTimeout    = 250 * time.Millisecond
	defaultBreakAfter = 5
)

func TestParseLimitReadsAndPrints(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text  string
		want  throttle.Limit
		print string // what String says; empty: the text
	}{
		"per minute":           {"100/1m", throttle.PerMinute(100), ""},
		"per second":           {"1/1s", throttle.PerSecond(1), ""},
		"a unit for one of it": {"10/s", throttle.PerSecond(10), "10/1s"},
		"a day":                {" 10 / d ", throttle.PerDay(10), "10/24h"},
		"running":              {"3/running", throttle.Running(3), ""},
		"running, with a lease": {" 3 / running @ 1m",
			throttle.Limit{Units: 3, Running: true, Lease: time.Minute}, "3/running@1m"},
		"running, unlimited": {"unlimited/running", throttle.Running(throttle.Unlimited), ""},
		"quota":              {"5000/day@Europe/Paris", throttle.PerCalendarDay(5000, "Europe/Paris"), ""},
		"hours": {"open Mon-Fri 09:00-17:00, except 2026-12-25 @UTC",
			throttle.OpenHours("Mon-Fri 09:00-17:00 @UTC", "2026-12-25"), ""},
		"ramp": {"ramp 50/day x2 max 200 from 2026-12-01 @UTC", throttle.Ramp("50 100 200/day from 2026-12-01 @UTC"),
			"ramp 50 100 200/day from 2026-12-01 @UTC"},
		"quota of a week":  {"7/week@UTC", throttle.PerCalendarWeek(7, "UTC"), ""},
		"quota of a month": {"7/month@Asia/Kolkata", throttle.PerCalendarMonth(7, "Asia/Kolkata"), ""},
		"quota, unlimited": {"unlimited/day@UTC", throttle.PerCalendarDay(throttle.Unlimited, "UTC"), ""},
		"quota from an hour on": {" 5000 / day+3h @ America/Los_Angeles ",
			throttle.Limit{Units: 5000, Calendar: throttle.Calendar{
				Unit: throttle.Day, Hours: 3, Zone: "America/Los_Angeles"}},
			"5000/day+3h@America/Los_Angeles"},
		"quota from Sunday on": {"20000/week+6d@UTC", throttle.Limit{Units: 20_000,
			Calendar: throttle.Calendar{Unit: throttle.Week, Days: 6, Zone: "UTC"}}, ""},
		"quota from the 15th on": {"100000/month+14d+23h@Etc/GMT+8", throttle.Limit{Units: 100_000,
			Calendar: throttle.Calendar{Unit: throttle.Month, Days: 14, Hours: 23, Zone: "Etc/GMT+8"}}, ""},
		"per hour":  {"7/1h", throttle.PerHour(7), ""},
		"per day":   {"2000/24h", throttle.PerDay(2000), ""},
		"days":      {"50000/7d", throttle.Per(50000, 7*day), "50000/168h"},
		"precision": {"500/1m@1s", throttle.Limit{Units: 500, Window: time.Minute, Precision: time.Second}, ""},
		"exact by name": {"500/1m@1us",
			throttle.Limit{Units: 500, Window: time.Minute, Precision: throttle.Exact}, "500/1m@1µs"},
		"precision in days": {"500/7d@1d", throttle.Limit{Units: 500, Window: 7 * day, Precision: day}, "500/168h@24h"},
		"precision of months": {"2000/150d@150d", throttle.Limit{Units: 2000, Window: 150 * day, Precision: 150 * day},
			"2000/3600h@3600h"},
		"spaces": {"  100 / 1m @ 1s ",
			throttle.Limit{Units: 100, Window: time.Minute, Precision: time.Second}, "100/1m@1s"},
		"F48 none":            {"0/1m", throttle.PerMinute(0), ""},
		"F48 unlimited":       {"unlimited/1m", throttle.PerMinute(throttle.Unlimited), ""},
		"F47 largest units":   {"9007199254740992/1s", throttle.PerSecond(1 << 53), ""},
		"F49 shortest window": {"1/1ms", throttle.Per(1, time.Millisecond), ""},
		"F49 longest window":  {"1/400d", throttle.Per(1, 400*day), "1/9600h"},
		"window as precision": {"5/10s@10s",
			throttle.Limit{Units: 5, Window: 10 * time.Second, Precision: 10 * time.Second}, ""},
		"window in parts":         {"5/1h30m", throttle.Per(5, 90*time.Minute), ""},
		"window with an end of 0": {"5/10m", throttle.Per(5, 10*time.Minute), ""},
		"window of 1h0m10s":       {"5/1h0m10s", throttle.Per(5, time.Hour+10*time.Second), ""},
		"fraction of a second":    {"5/1.5s", throttle.Per(5, 1500*time.Millisecond), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := throttle.ParseLimit(test.text)
			if err != nil || got != test.want {
				t.Fatalf("ParseLimit(%q): got %+v, %v; want %+v", test.text, got, err, test.want)
			}
			printed := test.print
			if printed == "" {
				printed = test.text
			}
			if got.String() != printed {
				t.Errorf("String of %q: got %q, want %q", test.text, got.String(), printed)
			}
		})
	}
}

// TestF45_ParseLimitRefuses: what is no integer, or out of range, is no limit.
func TestF45_ParseLimitRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "/", "100", "100/", "/1m", "100/1m@", "100/1m/1s", "100/1m@1s@1s", "100,200/1m",
		"-1/1m", "-100/1m", "+100/1m", "1.5/1m", "1e3/1m", "0x10/1m", "nan/1m", "inf/1m", "Unlimited/1m", "1_000/1m", "١/1m",
		"9007199254740993/1m", "9223372036854775807/1m", "9223372036854775808/1m", "99999999999999999999/1m", // F47
		// F49
		"1/0s", "1/1us", "1/999us", "1/-1m", "1/401d", "1/9600h1us", "1/400d1h", "1/99999d", "1/65536d", "1/-1d",
		"1/1.5d", "1/+1d", "1/60", "1/1", "1/nan", "1/1m1",
		"1/1.0000005s", "1/1m@1ns", "1/1m@1500ns", "1/1m@0s", "1/1m@0d", "1/1m@-1s", "1/1m@2m", "1/1m@x",
		"3/running@", "3/running@0s", "3/running@199ms", "3/running@24h1s", "3/running@1m@1s", "3/running/1m",
		"3/Running", "running/1m", "-1/running", "3/running@300ms1ns",
		"1/day", "1/day@", "1/day@Mars/Base", "1/day@Local", "1/day@UTC@UTC", "1/day@1h", "1/Day@UTC",
		"1/day+@UTC", "1/day+24h@UTC",
		"1/day+1d@UTC", "1/day+30m@UTC", "1/day+-1h@UTC", "1/week+7d@UTC", "1/month+31d@UTC", "1/month+1h+1d@UTC",
		"ramp", "ramp ", "ramp 50/day@UTC", "ramp50/day from 2026-12-01 @UTC", "Ramp 50 60/day from 2026-12-01 @UTC",
		"ramp 50/day x2 from 2026-12-01 @UTC", "ramp 50 60/1m from 2026-12-01 @UTC",
		"1/2day@UTC", "1/year@UTC", "1/day@../../etc/passwd", "-1/day@UTC", "9007199254740993/day@UTC",
	} {
		limit, err := throttle.ParseLimit(text)
		var bad *throttle.LimitError
		if !errors.As(err, &bad) || bad.Reason == "" || limit != (throttle.Limit{}) {
			t.Errorf("ParseLimit(%q): got %+v, %v; want no limit and a *LimitError with its reason", text, limit, err)
		}
	}
}

// TestLimitDescribesItself: a limit has a label, a length and the precision or the lease in force.
func TestLimitDescribesItself(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		label  string
		length time.Duration
		full   string
	}{
		"5/1m":                {"1m", time.Minute, "5/1m@1µs"},
		"500/1m":              {"1m", time.Minute, "500/1m@600ms"},
		"500/7d@1s":           {"168h", 7 * day, "500/168h@1s"},
		"3/running":           {"running", 30 * time.Second, "3/running@30s"},
		"3/running@5m":        {"running", 5 * time.Minute, "3/running@5m"},
		"0/running@5m":        {"running", 5 * time.Minute, "0/running@5m"},
		"9/day+3h@Asia/Tokyo": {"day+3h@Asia/Tokyo", day, "9/day+3h@Asia/Tokyo"},
		"9/week@UTC":          {"week@UTC", 7 * day, "9/week@UTC"},
		"9/month@UTC":         {"month@UTC", 31 * day, "9/month@UTC"},
	} {
		l, err := throttle.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		if full := l.WithDefaults(); l.Label() != want.label || l.Length() != want.length || full.String() != want.full {
			t.Errorf("%s: label %s, length %s, in force %s, want %+v", text, l.Label(), l.Length(), full, want)
		}
	}
}

func TestParseLimits(t *testing.T) {
	t.Parallel()
	got, err := throttle.ParseLimits("100/1m, 2000/24h,unlimited/1s")
	want := []throttle.Limit{throttle.PerMinute(100), throttle.PerDay(2000), throttle.PerSecond(throttle.Unlimited)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ParseLimits: %v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", ",", "100/1m,", "100/1m,,2000/24h", "100/1m;2000/24h", "100/1m 2000/24h"} {
		var bad *throttle.LimitError
		if got, err := throttle.ParseLimits(text); !errors.As(err, &bad) || got != nil {
			t.Errorf("ParseLimits(%q): got %v, %v; want none and a *LimitError", text, got, err)
		}
	}
}

// TestLimitInJSON: a limit is text in a configuration file. F45: a number, a
// fraction or a word is none, and what was there stays.
func TestLimitInJSON(t *testing.T) {
	t.Parallel()
	type file struct{ Limits []throttle.Limit }
	want := file{Limits: []throttle.Limit{throttle.PerMinute(100),
		{Units: 500, Window: time.Hour, Precision: time.Minute}}}
	text, err := json.Marshal(want)
	if err != nil || string(text) != `{"Limits":["100/1m","500/1h@1m"]}` {
		t.Errorf("Marshal: got %s, %v", text, err)
	}
	var got file
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Unmarshal (-want +got):\n%s", diff)
	}
	for _, bad := range []string{`"NaN/1m"`, `"1.5/1m"`, `"-1/1m"`, `"Infinity/1m"`, `100`, `1e400`, `""`} {
		limit := throttle.PerSecond(3)
		if err := json.Unmarshal([]byte(bad), &limit); err == nil || limit != throttle.PerSecond(3) {
			t.Errorf("Unmarshal %s: got %v, %v; want an error and the limit as it was", bad, limit, err)
		}
	}
}

// FuzzParseLimit: whatever is read is in range and reads the same after it was
// printed; nothing panics.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{
		"100/1m", "2000/24h", "50000/7d@1h", "unlimited/1m", "0/1s", "9007199254740992/400d", "1/1ms@1us",
		"9007199254740993/1m", "1/1h0m0.000001s", "-1/1m", "1/1m@0s", "1/9600h@9600h", " 1 / 1m ", "1/2562047h", "1/1m0s@60s",
		"3/running@1m", "5000/day@Europe/Paris", "1/month+14d3h@UTC", "open 22:00-06:00 @Asia/Kolkata",
		"open Mon-Fri 09:00-17:00, Sat 10:00-12:00, except 2026-12-25 2027-01-01 @Europe/Paris",
		"ramp 50/day x2 every 1d max 20000 from 2026-12-01 @UTC", "ramp 1/week+3d+4h x1.3 max 6 from 2026-12-01 @UTC",
		"ramp 50 100/month+30d every 3mo from 2026-12-01 held 2027-02-03 @Europe/Paris",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limit, err := throttle.ParseLimit(text)
		if err != nil {
			var bad *throttle.LimitError
			if !errors.As(err, &bad) {
				t.Fatalf("ParseLimit(%q): got the error %v, want a *LimitError", text, err)
			}
			return
		}
		isWindow := !limit.Running && limit.Calendar == (throttle.Calendar{}) && limit.Hours == ""
		inRange := limit.Window >= time.Millisecond && limit.Window <= maxWindow && limit.Window%time.Microsecond == 0 &&
			limit.Precision >= 0 && limit.Precision <= limit.Window && limit.Precision%time.Microsecond == 0 &&
			(limit.Units <= 1000 || limit.Precision == 0 || limit.Window/limit.Precision <= 1000)
		if limit.Units < throttle.Unlimited || limit.Units > maxUnits || isWindow && !inRange {
			t.Fatalf("ParseLimit(%q) took %+v, which is out of range", text, limit)
		}
		again, err := throttle.ParseLimit(limit.String())
		if err != nil || again != limit {
			t.Fatalf("ParseLimit(%q) printed as %q: got %+v, %v; want %+v", text, limit, again, err, limit)
		}
		if again.String() != limit.String() {
			t.Fatalf("%q printed twice: got %q and %q", text, limit, again)
		}
	})
}

// TestF49_WindowsAndF47_UnitsInCode: limits written in code meet the same checks,
// in New.
func TestF49_WindowsAndF47_UnitsInCode(t *testing.T) {
	t.Parallel()
	good := []throttle.Limit{
		throttle.Per(1, time.Millisecond), throttle.Per(1, 400*day), throttle.Per(101, time.Millisecond),
		throttle.PerSecond(maxUnits), throttle.PerSecond(0), throttle.PerSecond(throttle.Unlimited),
		{Units: 1, Window: time.Second, Precision: time.Microsecond}, {Units: 1, Window: time.Second, Precision: time.Second},
		{Units: 1000, Window: time.Second, Precision: throttle.Exact},
		{Units: 1001, Window: time.Second, Precision: time.Millisecond},
		{Units: 1001, Window: time.Millisecond, Precision: throttle.Exact},
		{Units: throttle.Unlimited, Window: time.Second, Precision: throttle.Exact},
	}
	bad := []throttle.Limit{
		{}, throttle.Per(1, 0), throttle.Per(1, -time.Second), throttle.Per(1, time.Microsecond),
		throttle.Per(1, time.Millisecond-1),
		throttle.Per(1, time.Millisecond+1), throttle.Per(1, 400*day+time.Microsecond), throttle.Per(1, math.MaxInt64),
		throttle.PerSecond(-2), throttle.PerSecond(math.MinInt64), throttle.PerSecond(maxUnits + 1),
		throttle.PerSecond(math.MaxInt64),
		{Units: 1, Window: time.Second, Precision: -1}, {Units: 1, Window: time.Second, Precision: 1},
		{Units: 1, Window: time.Second, Precision: time.Second + time.Microsecond},
		{Units: 1, Window: time.Second, Precision: time.Microsecond + 1},
		{Units: 1001, Window: time.Second, Precision: throttle.Exact},
		{Units: 1001, Window: time.Second, Precision: 999 * time.Microsecond},
	}
	client := miniClient(t)
	for _, limit := range good {
		if _, err := throttle.New("n", client,
			[]throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{limit}}}, nil); err != nil {
			t.Errorf("New with %+v: got %v, want none", limit, err)
		}
	}
	for _, limit := range bad {
		_, err := throttle.New("n", client, []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{limit}}}, nil)
		var wrong *throttle.LimitError
		if !errors.As(err, &wrong) {
			t.Errorf("New with %+v: got %v, want a *LimitError", limit, err)
		}
	}
}

// TestNegativeLimits: a negative number of units is no limit, in New and in SetLimits,
// but for the one that Unlimited is; as text that one is none either.
func TestNegativeLimits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, globalScope(throttle.PerHour(5)), throttle.Options{})
		for _, units := range []int64{-2, -5, -100} {
			limits := []throttle.Limit{throttle.PerHour(units)}
			var wrong *throttle.LimitError
			if _, err := throttle.New("t", client, globalScope(limits...), nil); !errors.As(err, &wrong) {
				t.Errorf("New with %d: got %v, want a *LimitError", units, err)
			}
			if err := s.SetLimits(dawn, throttle.Global, "", limits, time.Time{}); !errors.As(err, &wrong) {
				t.Errorf("SetLimits to %d: got %v, want a *LimitError", units, err)
			}
		}
		if _, err := throttle.ParseLimit("-1/1h"); err == nil {
			t.Error("-1/1h is a limit")
		}
		if err := s.SetLimits(dawn, throttle.Global, "", []throttle.Limit{throttle.PerHour(throttle.Unlimited)},
			time.Time{}); err != nil {
			t.Error(err)
		}
		comes(t, s, time.Second, throttle.Job{ID: "many", Weight: 1_000_000}, throttle.Granted)
	})
}

// TestF48_NoneAndUnlimited: under a limit of 0 jobs wait in line; Unlimited holds nothing
// back, and nothing is kept for it.
func TestF48_NoneAndUnlimited(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		closed := newThrottle(t, client, globalScope(throttle.PerMinute(0), throttle.PerHour(10)), nil)
		if got := reserve(t, closed, throttle.Job{ID: "x", Weight: 1}); got.Outcome != throttle.Waiting ||
			got.Hold == nil || got.Hold.Limit.Units != 0 {
			t.Errorf("limit 0: got %+v, want waiting under it", got)
		}
		usage, err := inspect.New(closed).Usage(t.Context(), throttle.Global, "")
		if err != nil || !usage.Limits[0].Free.IsZero() || usage.Limits[1].Free.IsZero() {
			t.Errorf("usage of limit 0: got %+v, %v; want no free instant for it, one for the other", usage, err)
		}

		open := newThrottle(t, client, globalScope(throttle.PerMinute(throttle.Unlimited)), nil)
		for i := range 50 {
			job := throttle.Job{ID: fmt.Sprint(i), Weight: maxUnits}
			if got := reserve(t, open, job); got.Outcome != throttle.Granted || got.Hold != nil || got.Delay() != 0 {
				t.Fatalf("unlimited, job %d: got %+v, want granted at once", i, got)
			}
		}
		usage, err = inspect.New(open).Usage(t.Context(), throttle.Global, "")
		if err != nil || len(usage.Limits) != 1 || !usage.Limits[0].Free.Equal(usage.Now) {
			t.Errorf("usage of Unlimited: got %+v, %v; want free now", usage, err)
		}
		if keys := keyspace(t, client, open); len(keys) > 0 {
			t.Errorf("kept for Unlimited: %q", keys)
		}
		limitless := newThrottle(t, client, []throttle.Scope{{Name: throttle.Global}}, nil)
		if got := reserve(t, limitless, throttle.Job{ID: "x", Weight: 1}); got.Outcome != throttle.Granted {
			t.Errorf("a scope without limits: got %+v, want granted", got)
		}
	})
}

// TestF49_ExtremeWindows: the shortest and the longest window work, and their
// keys expire.
func TestF49_ExtremeWindows(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{time.Millisecond, 1001 * time.Microsecond, 24 * time.Hour, 400 * day} {
		for _, precision := range []time.Duration{0, throttle.Exact, window} {
			limit := throttle.Limit{Units: 2, Window: window, Precision: precision}
			t.Run(limit.String(), func(t *testing.T) {
				t.Parallel()
				onServers(t, func(t *testing.T, client *redis.Client) {
					lookahead := max(4*window, 100*time.Millisecond) // as far as four jobs reach
					th := newThrottle(t, client, globalScope(limit),
						&throttle.Options{Grace: time.Second, Lookahead: min(lookahead, maxWindow)})
					s := newScripted(th)
					var starts []throttletest.Start
					now := time.UnixMicro(1_800_000_000_000_123)
					for i := range 4 {
						job := throttle.Job{ID: fmt.Sprint(i), Weight: 1, MaxWait: 400 * day}
						got, err := s.Reserve(now, job)
						if err != nil {
							t.Fatalf("job %d: %v", i, err)
						}
						starts = append(starts, throttletest.Start{At: got.Start, Weight: 1})
						if early := now.Add(window); i >= 2 && got.Start.Before(early) {
							t.Errorf("job %d: starts at %s, want not before %s", i, got.Start, early)
						}
						if late := now.Add(2*window + precision); got.Start.After(late) {
							t.Errorf("job %d: starts at %s, want not after %s", i, got.Start, late)
						}
					}
					for _, over := range throttletest.Check(globalScope(limit), starts) {
						t.Error(over)
					}
					for _, key := range keyNames(t, client, th) {
						if !strings.Contains(key, ":key:") && !strings.Contains(key, ":ledger:") {
							continue
						}
						// The last start is up to two windows off and counts for up to two
						// more, where a sub-window is as long as the window; then there are
						// the lookahead, the grace, a minute, and a quarter of all that.
						if left, most := ttl(t, client, key),
							5*window+lookahead+time.Second+time.Minute; left < window || left > most+most/4 {
							t.Errorf("key %q lives for %s; the window is %s", key, left, window)
						}
					}
				})
			})
		}
	}
}
