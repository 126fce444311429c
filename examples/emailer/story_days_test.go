package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/delivery"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// picture is the file that TestCampaignOfDays draws its three days into; make picture-days sets it.
var picture = flag.String("picture", "", "draw the campaign of three days into this `file`")

const drawn = "Monday to Wednesday"

// heaviest is how many recipients a mail has at most.
const heaviest = 2

// window is the length of the global limit, perWindow. The order of the mails decides whether a window has a unit left
// over.
const window = 5 * time.Minute

var perWindow = throttle.Per(6, window)

// days is a campaign over several days: its beginning in Paris, the opening hours, the units of each tenant, and each
// tenant's daily quota.
type days struct {
	name, from, hours string
	units             map[string]int
	perDay            int64
	full              bool // it takes long
}

var (
	threeDays  = map[string]int{"acme": 300, "globex": 260, "initech": 170}
	shortNight = days{"a short night", "2026-03-02 23:00", "00:20-23:40 @Europe/Paris",
		map[string]int{"acme": 25, "globex": 22, "initech": 18}, 14, false} // less than two days' quotas
)

// run runs the campaign in virtual time.
func (d days) run(t *testing.T, before func(e *emailer)) *delivery.Report {
	t.Helper()
	flags := []string{"-limits", "global=" + perWindow.String(), "-hours", d.hours,
		"-per-day", fmt.Sprintf("%d@Europe/Paris", d.perDay)}
	return inBubble(t, parisAt(t, d.from), d.campaign(t), flags, before)
}

// campaign returns the mails, all of which arrive at once.
func (d days) campaign(t *testing.T) *campaign.Campaign {
	t.Helper()
	var text strings.Builder
	text.WriteString(csvHeader)
	left := maps.Clone(d.units)
	for n := 0; len(left) > 0; n++ {
		for _, tenant := range slices.Sorted(maps.Keys(left)) {
			var to []string
			for i := range min(left[tenant], 1+n%heaviest) {
				to = append(to, fmt.Sprintf("a%d@%s", i, []string{"hill.example", "lake.example", "coast.example"}[n%3]))
			}
			fmt.Fprintf(&text, "%s-%d,0s,%s,me@%s.example,%s,Hi,Text\n", tenant, n, tenant, tenant, strings.Join(to, " "))
			if left[tenant] -= len(to); left[tenant] == 0 {
				delete(left, tenant)
			}
		}
	}
	c, err := campaign.Load(d.name, strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// parisAt returns an instant by the clock of Paris.
func parisAt(t *testing.T, text string) time.Time {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04", text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// text returns a report as a person reads it.
func text(r *delivery.Report) string {
	var text bytes.Buffer
	r.Write(&text)
	return text.String()
}

// TestCampaignOfDays: a campaign goes on over closed nights, under quotas that begin anew at midnight. The SMTP
// server's record has no mail outside of the hours and no day over its quota, and the campaign ends when it was
// forecast.
func TestCampaignOfDays(t *testing.T) {
	longtest.Unwatched(t)
	for _, d := range []days{
		shortNight,
		{drawn, "2026-03-02 13:00", "Mon-Fri 09:00-17:00 @Europe/Paris", threeDays, 110, true},
		{"when the clock changes", "2026-03-28 13:00", "09:00-17:00 @Europe/Paris", threeDays, 110, true},
	} {
		t.Run(d.name, func(t *testing.T) {
			if d.full {
				longtest.Only(t, "a short night")
			}
			began := time.Now()
			r := d.run(t, func(*emailer) {})
			t.Logf("took %s\n%s", time.Since(began).Round(time.Second), text(r))
			d.expectKept(t, r)
			if *picture != "" && d.name == drawn {
				if err := r.Plot(*picture); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// expectKept checks in a report that the campaign kept its limits, and compares it with its forecast.
func (d days) expectKept(t *testing.T, r *delivery.Report) {
	t.Helper()
	expectAllWell(t, r)
	seen := 0
	for _, l := range r.Limits {
		switch use := l.Record; {
		case strings.Contains(l.Limit, "/day@"):
			if seen++; use.Units <= d.perDay-heaviest || use.Units > d.perDay || use.Period < d.from[:len(time.DateOnly)] {
				t.Errorf("%s: %+v, want a full day", l.Limit, use)
			}
		case strings.HasPrefix(l.Limit, "open "):
			if seen++; use.Units != 0 || use.Period != report.Closed {
				t.Errorf("%s: %+v, want nothing outside", l.Limit, use)
			}
		}
	}
	if seen != 2 {
		t.Errorf("the report has %d of quota and hours", seen)
	}
}

// expectAllWell checks in a report what every campaign of days must keep, and compares it with its forecast.
func expectAllWell(t *testing.T, r *delivery.Report) {
	t.Helper()
	if !r.OK || r.GrantToReceipt.Slow() || r.Delivered != r.Mails || r.WindowsOver != 0 || r.Forecast == nil ||
		r.MakespanRatio == nil || *r.MakespanRatio < 1 {
		t.Fatalf("got\n%s", text(r))
	}
	if off := math.Abs(r.Forecast.EndOffS); off > max(r.MakespanS/100, window.Seconds()) || len(r.Forecast.Ends) < 2 {
		t.Errorf("the last started %.0f s off the forecast, after %.0f s", off, r.MakespanS)
	}
}

// TestChecksFailWithoutHoursOrQuota: when the throttle does not have the hours or the quota, the checks find that.
func TestChecksFailWithoutHoursOrQuota(t *testing.T) {
	longtest.Unwatched(t)
	for _, row := range []struct {
		without, scope, key string
		limits              []throttle.Limit
		over                string
	}{
		{"hours", throttle.Global, "", []throttle.Limit{perWindow}, "times outside"},
		{"quota", scopeTenant, "acme", []throttle.Limit{throttle.PerSecond(throttle.Unlimited)}, "periods over"},
	} {
		t.Run(row.without, func(t *testing.T) {
			r := shortNight.run(t, func(e *emailer) {
				if err := inspect.New(e.throttle).SetLimits(context.Background(), row.scope, row.key, row.limits); err != nil {
					t.Fatal(err)
				}
			})
			var record, grants int
			for _, l := range r.Limits {
				record, grants = record+l.Record.Over, grants+l.Grants.Over
			}
			if r.OK || record == 0 || grants == 0 || !strings.Contains(text(r), row.over) {
				t.Errorf("%d over in the record, %d in the grants:\n%s", record, grants, text(r))
			}
		})
	}
}
