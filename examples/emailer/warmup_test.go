package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestParseWarmup(t *testing.T) {
	t.Parallel()
	got, err := parseWarmup(" acme = 0s 2/1s;  10s 4/1s ;20s -")
	if err != nil {
		t.Fatal(err)
	}
	want := warmup{tenant: "acme", steps: []step{{0, throttle.PerSecond(2)}, {10 * time.Second, throttle.PerSecond(4)}, {20 * time.Second, throttle.Limit{}}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(warmup{}, step{})); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if none, err := parseWarmup(" "); err != nil || none.steps != nil {
		t.Errorf("of nothing: got %+v, %v", none, err)
	}
	for text, want := range map[string]string{
		"acme":                      "is not tenant=time limit",
		"=0s 1/1s":                  "is not tenant=time limit",
		"acme=":                     "is not a time and a limit",
		"acme=0s":                   "is not a time and a limit",
		"acme=soon 1/1s":            "soon is not a duration",
		"acme=-1s 1/1s":             "-1s is not a duration",
		"acme=0s fast":              "fast",
		"acme=1s 1/1s;1s 2/1s":      "before the step before it",
		"acme=0s 2/1s;1s 2/1s":      "is not more than 2/1s",
		"acme=0s 2/1s;1s 9/2s":      "is not more than 2/1s",
		"acme=0s 2/1s;1s -;2s 3/1s": "after the last step",
	} {
		if _, err := parseWarmup(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestBundledCampaignHasATenantThatWarmsUp(t *testing.T) {
	t.Parallel()
	c, err := openCampaign("")
	if err != nil {
		t.Fatal(err)
	}
	w, err := parseWarmup(defaultWarmup)
	if err != nil || !w.among(c) {
		t.Errorf("%+v, %v: no mails of it", w, err)
	}
	for _, m := range c.mails {
		if m.tenant == w.tenant && m.units() > w.steps[0].limit.Units {
			t.Errorf("mail %s does not fit the first limit", m.id)
		}
	}
}

func TestWarmed(t *testing.T) {
	t.Parallel()
	r := arrivedResult(t, mailText("a1", "0s", "a", 2)+mailText("a2", "0s", "a", 1)+mailText("b1", "0s", "b", 3), "tenant=9/1s")
	r.law.changes = []change{
		{at: zero.Add(-time.Millisecond), scope: scopeTenant, key: "a", limits: []throttle.Limit{throttle.PerSecond(2)}},
		{at: zero.Add(time.Second), scope: scopeTenant, key: "a", limits: []throttle.Limit{throttle.PerSecond(4)}},
		{at: zero.Add(2 * time.Second), scope: scopeTenant, key: "a"},
	}
	for _, start := range []struct {
		mail string
		at   time.Duration
	}{{"a1", 0}, {"b1", 500 * time.Millisecond}, {"a2", time.Second}, {"a1", 1100 * time.Millisecond}, {"a2", 4 * time.Second}} {
		r.granted = append(r.granted, grant{start: zero.Add(start.at), mail: r.campaign.byID[start.mail]})
	}
	want := []warmupStep{
		{Tenant: "a", Limit: "2/1s", UntilS: 1, Mails: 1, Units: 2, Fullest: 2},
		{Tenant: "a", Limit: "4/1s", FromS: 1, UntilS: 2, Mails: 2, Units: 3, Fullest: 3},
		{Tenant: "a", Limit: "as all", FromS: 2, UntilS: 4.000001, Mails: 1, Units: 1},
	}
	if diff := cmp.Diff(want, r.warmed()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if line := warmupLine(r, "a"); len(line) != 4 || line[3].X != 2 || line[3].Y != 4 {
		t.Errorf("the line of the limit is %v", line)
	}
}
