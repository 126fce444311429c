package throttletest_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

const hour = time.Hour

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestCheck: the checker itself, by hand. A window is open at its beginning and
// closed at its end.
func TestCheck(t *testing.T) {
	t.Parallel()
	ten := throttle.Per(3, 10*time.Second)
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{ten, throttle.Per(throttle.Unlimited, time.Hour)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(2)}, Optional: true},
	}
	start := func(at time.Duration, weight int64, tenant string) throttletest.Start {
		s := throttletest.Start{At: noon.Add(at), Weight: weight}
		if tenant != "" {
			s.Keys = map[string]string{"tenant": tenant}
		}
		return s
	}
	global := func(end time.Duration, units int64) throttletest.Over {
		return throttletest.Over{Scope: throttle.Global, Limit: ten, End: noon.Add(end), Units: units}
	}
	tests := map[string]struct {
		starts []throttletest.Start
		want   []throttletest.Over
	}{
		"nothing":              {nil, nil},
		"full":                 {[]throttletest.Start{start(0, 1, ""), start(5*time.Second, 2, "")}, nil},
		"at the window's edge": {[]throttletest.Start{start(0, 3, ""), start(10*time.Second, 3, "")}, nil},
		"just within the edge": {[]throttletest.Start{start(0, 3, ""),
			start(10*time.Second-time.Microsecond, 1, "")}, []throttletest.Over{global(10*time.Second-time.Microsecond, 4)}},
		"in any order": {[]throttletest.Start{start(9*time.Second, 2, ""), start(0, 2, "")},
			[]throttletest.Over{global(9*time.Second, 4)}},
		"at one instant": {[]throttletest.Start{start(0, 2, ""), start(0, 2, ""), start(0, 2, "")},
			[]throttletest.Over{global(0, 6)}},
		"by weight alone": {[]throttletest.Start{start(0, 4, "")}, []throttletest.Over{global(0, 4)}},
		"each window that is": {[]throttletest.Start{start(0, 3, ""), start(1*time.Second, 1, ""),
			start(2*time.Second, 1, "")}, []throttletest.Over{global(1*time.Second, 4), global(2*time.Second, 5)}},
		"keys apart": {[]throttletest.Start{start(0, 2, "a"), start(1*time.Second, 1, "b")}, nil},
		"one key": {[]throttletest.Start{start(0, 2, "a"), start(59*time.Second, 1, "a")}, []throttletest.Over{
			{Scope: "tenant", Key: "a", Limit: throttle.PerMinute(2), End: noon.Add(59 * time.Second), Units: 3},
		}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, throttletest.Check(scopes, test.starts)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	quota := throttle.Limit{Units: 3, Calendar: throttle.Calendar{Unit: throttle.Day, Hours: 14, Zone: "Europe/Paris"}}
	starts := []throttletest.Start{start(0, 2, ""), start(hour-1, 2, ""), start(hour, 3, ""), start(25*hour, 3, ""),
		start(49*hour-1, 1, ""), start(49*hour, 3, "")}
	over := throttletest.Over{Scope: throttle.Global, Limit: quota, End: noon.Add(hour - 1), Units: 4}
	later := throttletest.Over{Scope: throttle.Global, Limit: quota, End: noon.Add(49*hour - 1), Units: 4}
	if diff := cmp.Diff([]throttletest.Over{over, later}, throttletest.Check([]throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{quota}}}, starts)); diff != "" {
		t.Errorf("quota (-want +got):\n%s", diff)
	}
	if want := `global "": 4 units in the period of 3/day+14h@Europe/Paris whose last start is at ` +
		`Mar  1 12:59:59.999999`; over.String() != want {
		t.Errorf("got %q, want %q", over, want)
	}
	ramp := throttle.Ramp("3 4/day+14h every 2d from 2026-03-01 held 2026-03-09 @Europe/Paris")
	early := throttletest.Over{Scope: throttle.Global, Limit: ramp, End: noon.Add(hour - 1), Units: 4} // it has not begun
	second := throttletest.Over{Scope: throttle.Global, Limit: ramp, End: noon.Add(49*hour - 1), Units: 4}
	third := throttletest.Over{Scope: throttle.Global, Limit: ramp, End: noon.Add(50 * hour), Units: 5}
	if diff := cmp.Diff([]throttletest.Over{early, second, third}, throttletest.Check([]throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{ramp}}}, append(starts, start(50*hour, 2, ""),
		start(1000*hour, 4, "")))); diff != "" {
		t.Errorf("ramp (-want +got):\n%s", diff)
	}
	hours := throttle.OpenHours("14:00-15:00 @Europe/Paris")
	outside := throttletest.Over{Scope: throttle.Global, Limit: hours, End: noon.Add(2 * hour), Units: 1}
	if diff := cmp.Diff([]throttletest.Over{outside}, throttletest.Check([]throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{hours}}},
		[]throttletest.Start{start(hour, 2, ""), start(2*hour, 1, ""), start(2*hour-1, 1, "")})); diff != "" {
		t.Errorf("hours (-want +got):\n%s", diff)
	}
	want := `tenant "a": 3 units in the window of 2/1m that ends at Mar  1 12:00:59.000000`
	if got := tests["one key"].want[0].String(); got != want {
		t.Errorf("text: got %s, want %s", got, want)
	}
}

// TestRunOnModel: the model keeps the contract that it is the oracle of.
func TestRunOnModel(t *testing.T) {
	t.Parallel()
	throttletest.Run(t, func(_ *testing.T, scopes []throttle.Scope, options throttle.Options) throttletest.Subject {
		return throttletest.NewModel(scopes, options)
	})
}
