package throttle

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUnknownZone: if Redis asks for the edges of a zone that this process does not know, the answer is ErrState; no
// edges are guessed.
func TestUnknownZone(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.failing = map[string]error{"reserve": errors.New("EDGES day@Mars.Base 1 2")}
	th, err := New("t", fake, []Scope{{Name: Global, Limits: []Limit{PerMinute(1)}}}, &Options{Fallback: FallbackOpen})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := th.Reserve(t.Context(), Job{ID: "a", Weight: 1}); !errors.Is(err, ErrState) {
		t.Errorf("got %+v, %v; want ErrState", r, err)
	}
}

// TestLocalQuota: while Redis is away, a process starts its share of a quota in each period. All of the share may start
// at once.
func TestLocalQuota(t *testing.T) {
	t.Parallel()
	l := newLocalShare(0.5)
	midnight := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	take := func(at time.Time, units int64, limits ...Limit) bool {
		var charges []localCharge
		for _, limit := range limits {
			charges = append(charges, localCharge{localLimit{"global:", limit}, units})
		}
		_, taken := l.take(localGrant{}, charges, at)
		return taken
	}
	quota, window := PerCalendarDay(9, "UTC"), PerMinute(4)
	for i, step := range []struct {
		after  time.Duration
		units  int64
		limits []Limit
		want   bool
	}{
		{-time.Hour, 3, []Limit{quota}, true},
		{-time.Hour, 2, []Limit{quota}, false}, // 3+2 is more than half of 9
		{-time.Minute, 1, []Limit{quota, window}, true},
		{-time.Second, 1, []Limit{quota}, false},
		{-time.Second, 2, []Limit{window}, false},
		{0, 5, []Limit{quota}, false},
		{0, 2, []Limit{quota, window}, false}, // the window has no room, and the quota is not charged
		{0, 4, []Limit{quota}, true},
		{-time.Second, 1, []Limit{quota}, false}, // time does not go back
		{23 * time.Hour, 1, []Limit{quota}, false},
		{24 * time.Hour, 4, []Limit{quota}, true},
	} {
		if got := take(midnight.Add(step.after), step.units, step.limits...); got != step.want {
			t.Errorf("step %d: got %t, want %t", i+1, got, step.want)
		}
	}
}

// TestLocalRamp: while Redis is away, a process starts its share of the units that a ramp has in each period, and no
// job before the first period.
func TestLocalRamp(t *testing.T) {
	t.Parallel()
	l, ramp := newLocalShare(0.5), Ramp("4 8/day from 2026-11-26 @UTC")
	midnight := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		after time.Duration
		units int64
		want  bool
	}{{-time.Second, 1, false}, {0, 3, false}, {0, 2, true}, {time.Hour, 1, false}, {24 * time.Hour, 4, true},
		{25 * time.Hour, 1, false}, {48 * time.Hour, 4, true}} {
		charges := []localCharge{{localLimit{"global:", ramp}, step.units}}
		if _, got := l.take(localGrant{}, charges, midnight.Add(step.after)); got != step.want {
			t.Errorf("step %d: got %t, want %t", i+1, got, step.want)
		}
	}
}

// TestLocalHours: while Redis is away, no job starts outside of hours by this process' clock, and such a job is not
// charged.
func TestLocalHours(t *testing.T) {
	t.Parallel()
	l := newLocalShare(1)
	at := time.Date(2026, 11, 26, 8, 59, 59, 0, time.UTC)
	hours, window := OpenHours("09:00-17:00 @UTC"), PerHour(4)
	for i, want := range []bool{false, true, true, false} {
		charges := []localCharge{{localLimit{"global:", hours}, 1}, {localLimit{"global:", window}, 1}}
		if _, taken := l.take(localGrant{}, charges, at.Add(time.Duration(i)*time.Second)); taken != want {
			t.Errorf("step %d: got %t, want %t", i+1, taken, want)
		}
	}
}

// TestZonesThatDiffer: two processes differ if, by their zone data, a zone's clock is changed at different times.
func TestZonesThatDiffer(t *testing.T) {
	t.Parallel()
	const paris = "Europe/Paris"
	th, err := New("t", newFake(), []Scope{{Name: Global, Limits: []Limit{PerCalendarDay(1, paris),
		PerCalendarDay(1, "UTC"), PerMinute(1)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	own, other := th.self(), Process{}
	text, err := json.Marshal(own)
	if err == nil {
		err = json.Unmarshal(text, &other)
	}
	if err != nil || len(own.Clocks) != 2 || len(own.Clocks[paris]) < 4 || len(own.Clocks["UTC"]) != 1 {
		t.Fatalf("got %v, %v", own.Clocks, err)
	}
	own.Clocks[paris] = slices.Insert(own.Clocks[paris], 0, own.Clocks[paris][0].Add(-time.Hour)) // published earlier
	for _, pair := range [][2]Process{{own, other}, {other, own}} {
		if what := pair[0].Differences(pair[1]); len(what) > 0 {
			t.Errorf("alike: got %q", what)
		}
	}
	changed := other.Clocks[paris][1]
	other.Clocks[paris] = slices.Delete(other.Clocks[paris], 1, 2) // a year without summer or winter time
	for _, pair := range [][2]Process{{own, other}, {other, own}} {
		what := pair[0].Differences(pair[1])
		if len(what) != 1 || !strings.HasPrefix(what[0], "the clock of Europe/Paris at "+changed.Format("2006-01-02")) {
			t.Errorf("got %q, want the change at %s", what, changed)
		}
	}
}
