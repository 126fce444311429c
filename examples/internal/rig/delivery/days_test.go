package delivery

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/plot"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// daysResult returns a sampleResult, which begins on a Tuesday at 22:13:20 UTC, under hours and a quota of a tenant.
func daysResult(t *testing.T, hours string, perDay int64) result {
	t.Helper()
	r := sampleResult(t)
	r.law.Scopes = []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.OpenHours(hours)}},
		{Name: campaign.ScopeTenant, Limits: []throttle.Limit{throttle.PerCalendarDay(perDay, "UTC")}},
	}
	return r
}

func TestSummarizeQuotaAndHours(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		hours         string
		perDay        int64
		outside, over int // in the record, and again in the grants
		says          []string
	}{
		{"Tue 22:00-22:14 @UTC", 4, 0, 0, []string{"4 acme", "2023-11-14", "closed", "over their limit: 0"}},
		{"Tue 22:00-22:14 @UTC", 3, 0, 1, []string{"4 acme, 1 periods over", "over their limit: 2"}},
		{"Tue 22:14-23:00 @UTC", 4, 4, 0, []string{"5 , 4 times outside", "over their limit: 8"}},
	} {
		s := summarize(daysResult(t, row.hours, row.perDay))
		hours, quota := s.Limits[0], s.Limits[1]
		for _, use := range []report.WindowUse{hours.Record, hours.Grants} {
			if use.Over != row.outside || use.Period != report.Closed {
				t.Errorf("%s: %+v, want %d times outside", row.hours, use, row.outside)
			}
		}
		for _, use := range []report.WindowUse{quota.Record, quota.Grants} {
			if use.Over != row.over || use.Units != 4 || use.Period != "2023-11-14" {
				t.Errorf("%d a day: %+v, want 4 units and %d over", row.perDay, use, row.over)
			}
		}
		var text bytes.Buffer
		writeReport(&text, s)
		for _, want := range row.says {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s, %d a day: the report lacks %q:\n%s", row.hours, row.perDay, want, text.String())
			}
		}
	}
}

// A run of hours under a quota is drawn by the clock of its zone.
func TestWritePlotOfDays(t *testing.T) {
	t.Parallel()
	r := daysResult(t, "Tue 22:00-22:14, Wed 09:00-17:00 @UTC", 4)
	r.granted[3].start = r.granted[3].start.Add(12 * time.Hour)
	path := filepath.Join(t.TempDir(), "days.svg")
	if err := writePlot(path, r); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"all tenants: units started per hour", "all tenants: units arrived and started",
		"acme: units of the day so far", "4/day@UTC", "Wed 03:00", ">UTC<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if strings.Contains(string(svg), "seconds") {
		t.Error("the picture has seconds")
	}
}

// The line of a ramp goes up with its steps.
func TestDaysOfRamp(t *testing.T) {
	t.Parallel()
	r := daysResult(t, "00:00-24:00 @UTC", 4)
	ramp := throttle.Ramp("3 6/day every 2d from 2023-11-14 @UTC")
	const midnight = 3600 + 2800 // after the beginning at 22:13:20
	soFar, is := daysOf(r, row{limits: []throttle.Limit{ramp}}, time.UTC, midnight+2*86400)[1].(plot.Days)
	if want := []plot.Moment{{Units: 3}, {At: midnight + 86400, Units: 6}}; !is || !slices.Equal(soFar.Allowed, want) {
		t.Errorf("allowed are %v, want %v", soFar.Allowed, want)
	}
	path := filepath.Join(t.TempDir(), "ramp.svg")
	if err := plot.Write(path, [][]plot.Graph{{soFar, soFar}}, midnight+2*86400); err != nil {
		t.Fatal(err)
	}
	if svg, err := os.ReadFile(path); err != nil || !strings.Contains(string(svg), "ramp/day@UTC") {
		t.Errorf("the picture lacks the ramp: %v", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	r := daysResult(t, "", 4)
	const hour = 3600
	want := []plot.Pause{
		{From: 0, Until: 400}, {From: hour + 400, Until: 12*hour + 400}, {From: 13*hour + 400, Until: 15 * hour},
	}
	if diff := cmp.Diff(want, r.closed("Wed 10:20-11:20, Tue 22:20-23:20 @UTC", 15*hour)); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// While the end is far ahead, the ledger asks for it seldom, and the answers fit into a few lines.
func TestForecastsOfDays(t *testing.T) {
	t.Parallel()
	p := newPlan()
	if got := p.again(zero); got != expectEvery {
		t.Errorf("without a forecast it asks after %s", got)
	}
	p.ends = append(p.ends, expectedEnd{zero, zero.Add(48 * time.Hour)})
	for _, row := range []struct{ at, want time.Duration }{
		{0, 6 * time.Hour}, {40 * time.Hour, time.Hour}, {48*time.Hour - time.Second, expectEvery},
		{50 * time.Hour, expectEvery},
	} {
		if got := p.again(zero.Add(row.at)); got != row.want {
			t.Errorf("after %s it asks after %s, want %s", row.at, got, row.want)
		}
	}
	var text bytes.Buffer
	ends := slices.Repeat([]endExpected{{AtS: 123456.7, LastS: 200000.1}}, 100)
	writeForecast(&text, &forecast{EndS: 200000, Ends: ends})
	for line := range strings.Lines(text.String()) {
		if len(line) > 200 {
			t.Errorf("a line of %d letters: %s", len(line), line)
		}
	}
	if got := strings.Count(text.String(), " 123456.7"); got == 0 || got > mostEnds {
		t.Errorf("%d forecasts are printed:\n%s", got, text.String())
	}
}
