package try_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/internal/try"
)

// TestPlay: whatever the limits, no window of this library's side is over its limit by a count that is independent of
// the model, and every job starts unless the result says that it was cut.
func TestPlay(t *testing.T) {
	t.Parallel()
	const noSuch = "redis_rate has no such limit"
	for name, c := range map[string]struct {
		in       try.Input
		jobs     int
		from, to float64 // seconds between which the last job starts
		notes    string  // all of them contain it; empty: there are none
	}{
		"nothing is entered": {try.Input{}, 100, 0, 0, ""},
		"the README's picture": {
			try.Input{Global: "200/2s", Tenant: "50/2s", Tenants: "8", Jobs: "150"}, 1200, 10, 10.5, ""},
		"two windows": {try.Input{Tenant: "100/1m, 300/1h", Tenants: "2", Jobs: "301"}, 602, 3600, 3660, ""},
		"a quota": {
			try.Input{Tenant: "50/day@Europe/Paris", Jobs: "120", Begins: "2026-12-01T22:30"}, 120, 88_200, 88_210, noSuch},
		"a ramp": {
			try.Input{Global: "ramp 10 20 40/day from 2026-12-01 @UTC", Jobs: "50"}, 50, 140_400, 140_410, noSuch},
		"running":                {try.Input{Global: "3/running", Jobs: "30", Runs: "2s"}, 30, 18, 18.6, noSuch},
		"running beyond a lease": {try.Input{Global: "2/running", Jobs: "6", Runs: "2m"}, 6, 240, 240.5, noSuch},
		"hours": {
			try.Input{Global: "open Mon-Fri 09:00-17:00 @UTC", Jobs: "5", Begins: "2026-12-05T12:00"},
			5, 162_000, 162_001, noSuch},
		"one more scope":      {try.Input{Scope: "domain", Limits: "10/1m", Keys: "3", Jobs: "60"}, 60, 60, 61, ""},
		"an incident for all": {try.Input{Global: "10/1s", Jobs: "30", From: "1s", Until: "10s"}, 30, 10, 12, ""},
		"an incident for one": {try.Input{Tenants: "2", Jobs: "3", Paused: "tenant", Until: "90s"}, 6, 90, 91, ""},
		"jobs that come by time": {
			try.Input{Tenant: "1/1s", Jobs: "20", PerSecond: "0.5"}, 20, 38, 38.5, ""},
		"heavy jobs": {
			try.Input{Global: "100/1m", Jobs: "5, 200", Weight: "80, 1", Tenants: "2"}, 205, 240, 330, ""},
		"more jobs than played": {
			try.Input{Global: "1000/1s", Jobs: "5000"}, 3000, 2, 2.5, "first 3000 of 5000 jobs"},
		"unlimited": {try.Input{Global: "unlimited/1m", Tenants: "2", Jobs: "1"}, 2, 0, 0, ""},
		"shares":    {try.Input{Global: "10/1s", Tenants: "2", Shares: "3, 1", Jobs: "60"}, 120, 11, 11.5, ""},
		"some days": {try.Input{Global: "10/1d", Jobs: "35"}, 35, 259_200, 259_201, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := try.Play(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if r.Shaped.Over != 0 || r.Shaped.Fullest > 1 {
				t.Errorf("%d windows are over their limit, the fullest has %.3f of it", r.Shaped.Over, r.Shaped.Fullest)
			}
			if r.Jobs != c.jobs || r.Shaped.Started != c.jobs {
				t.Errorf("%d of %d jobs started, want all %d", r.Shaped.Started, r.Jobs, c.jobs)
			}
			if r.Shaped.Last < c.from || r.Shaped.Last > c.to {
				t.Errorf("the last job started after %.3f s, want from %v to %v", r.Shaped.Last, c.from, c.to)
			}
			for _, note := range r.Notes {
				if c.notes == "" || !strings.Contains(note, c.notes) {
					t.Errorf("the note is %q, want %q", note, c.notes)
				}
			}
			if c.notes != "" && len(r.Notes) == 0 {
				t.Errorf("there is no note of %q", c.notes)
			}
		})
	}
}

// TestChartsShowTheFullestWindow: what is drawn comes up to the limit, and on the recipe's side above it, as in the
// README's picture.
func TestChartsShowTheFullestWindow(t *testing.T) {
	t.Parallel()
	r, err := try.Play(try.Input{Global: "200/2s", Tenant: "50/2s", Tenants: "8", Jobs: "150"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Charts) != 2 || r.Charts[0].Scope != "global" || r.Charts[1].Limit != "50/2s" {
		t.Fatalf("the charts are %+v, want one of global and one of tenant", r.Charts)
	}
	of := r.Charts[0]
	if most := slices.Max(of.Shaped); most != 200 {
		t.Errorf("this library's side has up to %d units, want 200", most)
	}
	if most := slices.Max(of.Recipe); most <= 200 {
		t.Errorf("the recipe's side has up to %d units, want more than the limit", most)
	}
	if r.Shaped.PutBacks > 1 || r.Recipe.PutBacks < 3 {
		t.Errorf("put back %.2f and %.2f times per job, want at most 1 and many more",
			r.Shaped.PutBacks, r.Recipe.PutBacks)
	}
	if r.Recipe.Over == 0 || r.Recipe.Fullest < 1.5 {
		t.Errorf("the recipe's fullest window has %.2f of its limit, want nearly twice", r.Recipe.Fullest)
	}
}

// TestSharesDivide: of two tenants, of which one has three times the jobs and three times the share, both are served
// until the end.
func TestSharesDivide(t *testing.T) {
	t.Parallel()
	r, err := try.Play(try.Input{Global: "10/1s", Tenants: "2", Shares: "3, 1", Jobs: "300, 100"})
	if err != nil {
		t.Fatal(err)
	}
	first, second := r.Shaped.Waits[0], r.Shaped.Waits[1]
	if first.Started+second.Started != 400 || first.Longest < 35 || second.Longest < 35 {
		t.Errorf("the tenants waited %+v and %+v, want both to be served until the end", first, second)
	}
}

// TestTheSameInputHasTheSameResult: what a shared address shows is what its author saw.
func TestTheSameInputHasTheSameResult(t *testing.T) {
	t.Parallel()
	in := try.Input{
		Global: "20/1s", Tenant: "3/running", Tenants: "4", Jobs: "40", Runs: "500ms", From: "2s", Until: "4s"}
	one, err := try.Play(in)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		again, err := try.Play(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(one, again); diff != "" {
			t.Fatalf("another result (-first +again):\n%s", diff)
		}
	}
}

// TestWorkIsBounded: the largest backlogs are cut, and the result says so.
func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   try.Input
		note string
	}{
		"jobs":               {try.Input{Tenants: "50", Jobs: "1000000000", Global: "3000/1s"}, "3000 of 50000000000 jobs"},
		"jobs by time":       {try.Input{Jobs: "3000", PerSecond: "0.001"}, "none that comes later"},
		"time":               {try.Input{Global: "1/7d", Jobs: "10"}, "not started: at most 14 days"},
		"put-backs":          {try.Input{Global: "1000/1h", Jobs: "3000"}, "recipe's side ends with "},
		"a limit of nothing": {try.Input{Global: "0/1m"}, "ends with 100 jobs not started"},
		"calls":              {try.Input{Global: "1/running@2s", Jobs: "20", Runs: "24h"}, "at most 12000 calls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := try.Play(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(r.Notes, " "), c.note) {
				t.Errorf("the notes are %q, want %q", r.Notes, c.note)
			}
			if r.Shaped.Over != 0 {
				t.Errorf("%d windows are over their limit", r.Shaped.Over)
			}
		})
	}
}
