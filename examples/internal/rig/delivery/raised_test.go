package delivery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestRaised(t *testing.T) {
	t.Parallel()
	r := arrivedResult(t, mailText("a1", "0s", "a", 2)+mailText("a2", "0s", "a", 1)+mailText("b1", "0s", "b", 3),
		"tenant=9/1s")
	r.law.Changes = []check.Change{
		{At: zero.Add(-time.Millisecond), Scope: campaign.ScopeTenant, Key: "a",
			Limits: []throttle.Limit{throttle.PerSecond(2)}},
		{At: zero.Add(500 * time.Millisecond), Scope: throttle.Global},
		{At: zero.Add(time.Second), Scope: campaign.ScopeTenant, Key: "a", Limits: []throttle.Limit{throttle.PerSecond(4)}},
		{At: zero.Add(2 * time.Second), Scope: campaign.ScopeTenant, Key: "a"},
	}
	for _, start := range []struct {
		mail string
		at   time.Duration
	}{{"a1", 0}, {"b1", 500 * time.Millisecond}, {"a2", time.Second}, {"a1", 1100 * time.Millisecond},
		{"a2", 4 * time.Second}} {
		r.granted = append(r.granted, grant{start: zero.Add(start.at), mail: r.campaign.ByID[start.mail]})
	}
	want := []raisedStep{
		{Tenant: "a", Limit: "2/1s", UntilS: 1, Mails: 1, Units: 2, Fullest: 2},
		{Tenant: "a", Limit: "4/1s", FromS: 1, UntilS: 2, Mails: 2, Units: 3, Fullest: 3},
		{Tenant: "a", Limit: "as all", FromS: 2, UntilS: 4.000001, Mails: 1, Units: 1},
	}
	if diff := cmp.Diff(want, r.raised()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if line := raisedLine(r, "a"); len(line) != 4 || line[3].At != 2 || line[3].Units != 4 {
		t.Errorf("the limit is drawn as %v, want 4 points that end with 4 units at 2 s", line)
	}
}
