package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/delivery"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// warmup is the ramp of these campaigns: 20 units on the first day, 40 on the second, and then 80.
var warmup = throttle.Ramp("20/day x2 max 80 from 2026-12-01 @Europe/Paris")

// warmUp runs the campaign in virtual time, from an address that is new on 1 December.
func (d days) warmUp(t *testing.T, before func(e *emailer)) *delivery.Report {
	t.Helper()
	began := time.Now()
	flags := []string{"-limits", "global=" + perWindow.String(), "-warmup", warmup.String()}
	r := inBubble(t, parisAt(t, d.from), d.campaign(t), flags, before)
	t.Logf("took %s\n%s", time.Since(began).Round(time.Second), text(r))
	return r
}

// step is one step of the warm-up in a report, by the SMTP server's record.
type step struct {
	limit, day string
	units      int64
}

// stepsOf returns the steps of a report, each with its fullest day. It fails the test if the grants differ from the
// record.
func stepsOf(t *testing.T, r *delivery.Report) []step {
	t.Helper()
	var steps []step
	for _, l := range r.Limits {
		if !strings.HasSuffix(l.Limit, "/day@Europe/Paris") {
			continue
		}
		if l.Grants.Units != l.Record.Units || l.Grants.Period != l.Record.Period {
			t.Errorf("%s: %+v in the record, %+v of the grants", l.Limit, l.Record, l.Grants)
		}
		steps = append(steps, step{l.Limit, l.Record.Period, l.Record.Units})
	}
	return steps
}

// TestCampaignWarmsUp: the SMTP server's record has no day over its step of the ramp, each step that is reached is used
// up, and the campaign ends when it was forecast.
func TestCampaignWarmsUp(t *testing.T) {
	longtest.Unwatched(t)
	two := []step{{"20/day@Europe/Paris", "2026-12-01", 20}, {"40/day@Europe/Paris", "2026-12-02", 40}}
	for _, row := range []struct {
		days
		want []step
	}{
		{days{name: "over a midnight", from: "2026-12-01 23:10", units: map[string]int{"acme": 30, "globex": 30}}, two},
		{days{name: "over three days", from: "2026-12-01 23:10", units: map[string]int{"acme": 60, "globex": 50}, full: true},
			append(two, step{"80/day@Europe/Paris", "2026-12-03", 50})},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.full {
				longtest.Only(t, "over a midnight")
			}
			r := row.warmUp(t, func(*emailer) {})
			expectAllWell(t, r)
			if got := stepsOf(t, r); !slices.Equal(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
}

// fromSecond is a campaign from the second day of the ramp on.
var fromSecond = days{name: "from the second day", from: "2026-12-02 23:10",
	units: map[string]int{"acme": 50, "globex": 40}}

// TestWarmUpIsHeld: a ramp that is held on its second day has the units of that day on the third too, until it is
// ended. Then what is left starts.
func TestWarmUpIsHeld(t *testing.T) {
	longtest.Unwatched(t)
	var held inspect.Usage
	r := fromSecond.warmUp(t, func(e *emailer) {
		ctx, stop := context.WithCancel(context.Background())
		e.AtClose(stop)
		go func() {
			if rig.SleepUntil(ctx, parisAt(t, "2026-12-02 23:20")) {
				e.setWarmup(t, warmup.Held(e.Now()))
			}
			if !rig.SleepUntil(ctx, parisAt(t, "2026-12-03 01:00")) {
				return
			}
			var err error
			if held, err = inspect.New(e.throttle).Usage(ctx, throttle.Global, ""); err != nil {
				t.Error(err)
			}
			e.setWarmup(t, warmup.Ended())
		}()
	})
	if !r.OK || r.Delivered != r.Mails || r.WindowsOver != 0 {
		t.Errorf("got\n%s", text(r))
	}
	for _, l := range held.Limits {
		if l.Limit.Ramp != "" && (l.Units != 40 || l.Used != 40 || !strings.Contains(l.Limit.Ramp, "held 2026-12-02")) {
			t.Errorf("on the third day %+v, want 40 of 40 units", l)
		}
	}
	if len(held.Limits) != 2 {
		t.Errorf("on the third day %+v, want a window and a ramp", held.Limits)
	}
	want := []step{{"40/day@Europe/Paris", "2026-12-02", 40}, {"80/day@Europe/Paris", "2026-12-03", 50}}
	if got := stepsOf(t, r); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// setWarmup sets a limit in the place of the ramp, as an operator does, and tells the ledger.
func (e *emailer) setWarmup(t *testing.T, limit throttle.Limit) {
	t.Helper()
	at, limits := e.Now(), []throttle.Limit{perWindow, limit}
	if err := inspect.New(e.throttle).SetLimits(context.Background(), throttle.Global, "", limits); err != nil {
		t.Error(err)
	}
	e.ledger.LimitChanged(at, throttle.Global, "", limits)
}

// TestChecksFailWithoutWarmUp: when the throttle has the quota of the last step in the place of the ramp, the checks
// find that.
func TestChecksFailWithoutWarmUp(t *testing.T) {
	longtest.Unwatched(t)
	d := days{name: "without a ramp", from: "2026-12-01 23:10", units: map[string]int{"acme": 20, "globex": 20}}
	r := d.warmUp(t, func(e *emailer) {
		limits := []throttle.Limit{perWindow, warmup.Ended()}
		if err := inspect.New(e.throttle).SetLimits(context.Background(), throttle.Global, "", limits); err != nil {
			t.Fatal(err)
		}
	})
	first := slices.IndexFunc(r.Limits, func(l report.LimitUse) bool { return l.Limit == "20/day@Europe/Paris" })
	if r.OK || first < 0 || r.Limits[first].Record.Over != 1 || r.Limits[first].Grants.Over != 1 ||
		!strings.Contains(text(r), "40 , 1 periods over") {
		t.Errorf("got\n%s", text(r))
	}
}
