package delivery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestPausesOfOneDomainThatOverlapAreOne(t *testing.T) {
	t.Parallel()
	collector, err := metrics.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := zero
	p := &pauses{Observer: collector, now: func() time.Time { return now }}
	for _, row := range []struct {
		at, until  time.Duration
		scope, key string
	}{
		{0, 3 * time.Second, campaign.ScopeDomain, "hill.example"},
		{time.Second, 2 * time.Second, campaign.ScopeTenant, "acme"},
		{time.Second, 4 * time.Second, campaign.ScopeDomain, "hill.example"},
		{time.Second, 2 * time.Second, campaign.ScopeDomain, "lake.example"},
		{4 * time.Second, 4500 * time.Millisecond, campaign.ScopeDomain, "hill.example"},
		{5 * time.Second, 6 * time.Second, campaign.ScopeDomain, "hill.example"},
	} {
		now = zero.Add(row.at)
		p.Paused(throttle.Pause{Throttle: "t", Scope: row.scope, Key: row.key, Until: zero.Add(row.until)})
	}
	want := []pause{
		{"hill.example", zero, zero.Add(4500 * time.Millisecond)},
		{"lake.example", zero.Add(time.Second), zero.Add(2 * time.Second)},
		{"hill.example", zero.Add(5 * time.Second), zero.Add(6 * time.Second)},
	}
	if diff := cmp.Diff(want, p.all(), cmp.AllowUnexported(pause{})); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func TestHeeded(t *testing.T) {
	t.Parallel()
	hill, lake := &campaign.Mail{Domain: "hill.example"}, &campaign.Mail{Domain: "lake.example"}
	after := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	sent := func(m *campaign.Mail, decided, came int, closed bool) arrival {
		return arrival{Grant: grant{decided: after(decided), start: after(decided), mail: m},
			Entry: smtp.Receipt{At: after(came), Closed: closed}}
	}
	pauses := []pause{{"hill.example", after(1000), after(3500)}, {"hill.example", after(5000), after(7500)}}
	uses := heeded(pauses, []arrival{
		sent(hill, 900, 995, true),    // its refusal began the pause
		sent(hill, 990, 1400, true),   // decided before the pause
		sent(hill, 1000, 1400, true),  // decided as the pause began
		sent(hill, 1001, 1400, true),  // decided in the pause
		sent(hill, 1001, 1400, false), // accepted
		sent(lake, 1001, 1400, false),
		sent(hill, 4900, 4999, true),
		sent(lake, 6000, 6001, true), // never paused
		sent(hill, 8000, 8001, true), // when the pauses were over
	}, zero)
	want := []pauseUse{
		{Domain: "hill.example", AtS: 1, ForS: 2.5, Refused: 4, UnderWay: 3, Disregarded: 1},
		{Domain: "hill.example", AtS: 5, ForS: 2.5, Refused: 1, UnderWay: 1},
		{Domain: "lake.example", AtS: 6.001, Refused: 1, Disregarded: 1},
		{Domain: "hill.example", AtS: 8.001, Refused: 1, Disregarded: 1},
	}
	if diff := cmp.Diff(want, uses); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if n := disregarded(uses); n != 3 {
		t.Errorf("%d disregarded, want 3", n)
	}
}

// A report names an attempt in spite of a pause.
func TestSummarizeSeesADisregardedPause(t *testing.T) {
	t.Parallel()
	r := sampleResult(t)
	m := r.campaign.ByID["sent"]
	r.returned = append(r.returned, grant{start: zero, decided: zero, mail: m, returned: true})
	r.receipts = append(r.receipts, smtp.Receipt{At: zero.Add(time.Millisecond), Mail: m.ID, Recipients: 2,
		Reply: 451, Closed: true})
	s := summarize(r)
	if len(s.Pauses) != 1 || s.Pauses[0].Disregarded != 1 || s.WindowsOver != 0 {
		t.Errorf("got %+v, %d windows over; want one attempt disregarded, and not counted", s.Pauses, s.WindowsOver)
	}
}
