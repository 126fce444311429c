package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var zero = time.Unix(1_700_000_000, 0)

const columns = "id,at,tenant,from,to,subject,body\n"

// bundledLimits are the example's limits for the bundled campaign.
const bundledLimits = "global=40/1s,900/20s;tenant=30/1s,250/10s;domain=25/1s,120/10s"

// arrivedResult returns a run in which every mail has arrived on time.
func arrivedResult(t *testing.T, text, limits string) result {
	t.Helper()
	c, err := campaign.Load("test", strings.NewReader(columns+text))
	if err != nil {
		t.Fatal(err)
	}
	return arrivedCampaign(t, c, limits)
}

func arrivedCampaign(t *testing.T, c *campaign.Campaign, limits string) result {
	t.Helper()
	scopes, err := rig.ParseLimits(limits, throttle.Global, campaign.ScopeTenant, campaign.ScopeDomain)
	if err != nil {
		t.Fatal(err)
	}
	r := result{campaign: c, law: check.Law{Scopes: scopes}, began: zero, outcomes: make(map[string]outcome)}
	for _, m := range c.Mails {
		r.outcomes[m.ID] = outcome{arrived: zero.Add(m.At)}
	}
	return r
}

// mailText returns a line of a campaign.
func mailText(id, at, tenant string, recipients int) string {
	var to []string
	for i := range recipients {
		to = append(to, fmt.Sprintf("a%d@hill.example", i))
	}
	return fmt.Sprintf("%s,%s,%s,me@acme.example,%s,Hi,\n", id, at, tenant, strings.Join(to, " "))
}

func TestFirstCome(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, limits string
		mails        []string
		want         []string
	}{
		{"whoever sends", "global=2/1s", []string{
			mailText("a1", "0s", "a", 2), mailText("a2", "0s", "a", 2), mailText("a3", "0s", "a", 2),
			mailText("b1", "1500ms", "b", 1), mailText("a4", "1600ms", "a", 1),
		}, []string{"a1 0s", "a2 1s", "a3 2s", "b1 3s", "a4 3s"}},
		{"all limits", "global=2/1s;tenant=1/10s", []string{
			mailText("a1", "0s", "a", 1), mailText("a2", "0s", "a", 1), mailText("b1", "0s", "b", 1),
			mailText("c1", "0s", "c", 1),
		}, []string{"a1 0s", "b1 0s", "c1 1s", "a2 10s"}},
		{"starts count for their whole window", "global=1/1m", []string{
			mailText("a1", "0s", "a", 1), mailText("a2", "0s", "a", 1), mailText("a3", "100s", "a", 1),
		}, []string{"a1 0s", "a2 1m0s", "a3 2m0s"}},
		{"what never fits is left out", "domain=2/1s", []string{
			mailText("huge", "0s", "a", 3), mailText("a1", "0s", "a", 2), mailText("b1", "0s", "b", 1),
		}, []string{"a1 0s", "b1 1s"}},
		{"a light one fits before a heavy one, a heavy one does not", "global=3/1s", []string{
			mailText("a1", "0s", "a", 2), mailText("a2", "0s", "a", 3), mailText("b1", "0s", "b", 1),
			mailText("b2", "500ms", "b", 1),
		}, []string{"a1 0s", "b1 0s", "a2 1s", "b2 2s"}},
		{"no limits", "", []string{mailText("a1", "1s", "a", 3)}, []string{"a1 1s"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, g := range firstCome(arrivedResult(t, strings.Join(row.mails, ""), row.limits)) {
				got = append(got, fmt.Sprintf("%s %s", g.mail.ID, g.start.Sub(zero)))
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
}

func TestFirstComeOfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*result){
		"not arrived":     func(r *result) { r.outcomes["a"] = outcome{} },
		"ended earlier":   func(r *result) { r.outcomes["a"] = outcome{earlier: true, arrived: zero} },
		"arrived earlier": func(r *result) { r.outcomes["a"] = outcome{arrived: zero.Add(-time.Second)} },
		"too large for it ": func(r *result) {
			r.campaign.Mails = append(r.campaign.Mails,
				make([]*campaign.Mail, maxModelled)...)
		},
	} {
		r := arrivedResult(t, mailText("a", "0s", "a", 1), bundledLimits)
		change(&r)
		if got := firstCome(r); got != nil {
			t.Errorf("%s: got %v, want nothing", name, got)
		}
	}
}

// Every mail of the bundled campaign gets a start, and the limits are kept.
func TestFirstComeOfBundledCampaign(t *testing.T) {
	t.Parallel()
	c, err := campaign.Open("")
	if err != nil {
		t.Fatal(err)
	}
	r := arrivedCampaign(t, c, bundledLimits)
	starts := firstCome(r)
	if over := check.WindowsOver(check.Limits(grantEvents(starts), r.law, 0)); over != 0 || len(starts) != len(c.Mails) {
		t.Errorf("%d starts of %d mails, %d windows over", len(starts), len(c.Mails), over)
	}
}
