package delivery

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// sampleResult returns a small run: six mails, each of which ends in another way.
func sampleResult(t *testing.T) result {
	t.Helper()
	c, err := campaign.Load("sample", strings.NewReader(columns+
		"sent,0s,acme,me@acme.example,a@hill.example b@hill.example,Hi,\n"+
		"grey,0s,acme,me@acme.example,full@lake.example,Hi,\n"+
		"none,1s,globex,me@globex.example,nobody@hill.example,Hi,\n"+
		"done,0s,globex,me@globex.example,c@hill.example,Hi,\n"+
		"huge,0s,globex,me@globex.example,d@hill.example,Hi,\n"+
		"rest,0s,globex,me@globex.example,e@hill.example,Hi,\n"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1_700_000_000, 0)
	after := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	r := result{
		campaign: c, queue: "q", began: began, recordOf: "SMTP server", putBacks: 3, atOnce: throttle.Running(1),
		law: check.Law{Scopes: []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(2)}},
			{Name: campaign.ScopeTenant, Limits: []throttle.Limit{throttle.Per(10, 30*time.Second)}},
		}},
		outcomes: map[string]outcome{
			"sent": {state: delivered, arrived: after(0)},
			"grey": {state: delivered, arrived: after(0), deferred: 1, reason: "451 later"},
			"none": {state: refused, arrived: after(1000), reason: "550 nobody"},
			"done": {state: delivered, earlier: true},
			"huge": {state: gaveUp, reason: "can never start"},
			"rest": {state: waiting, arrived: after(0)},
		},
	}
	for _, one := range []struct {
		ms, delay int
		mail      string
		reply     int
	}{{0, 5, "sent", 250}, {1000, 20, "grey", 451}, {1000, 10, "none", 550}, {2000, 4, "grey", 250}} {
		m := c.ByID[one.mail]
		r.granted = append(r.granted, grant{start: after(one.ms), mail: m})
		r.receipts = append(r.receipts, smtp.Receipt{At: after(one.ms + one.delay), Mail: m.ID,
			Recipients: len(m.To), Reply: one.reply})
	}
	return r
}

// The report names a domain with more mails on their way than its limit allows, and is not OK.
func TestSummarizeCountsWhatIsAtOnce(t *testing.T) {
	t.Parallel()
	r := sampleResult(t)
	for i := range r.receipts {
		r.receipts[i].Began = r.receipts[i].At.Add(-time.Millisecond)
	}
	if s := summarize(r); s.AtOnce.Most != 1 || s.AtOnce.Over != 0 || s.AtOnce.Key != "hill.example" {
		t.Errorf("one after the other: %s", s.AtOnce)
	}
	r.receipts[2].Began = r.receipts[0].Began // both to hill.example
	if s := summarize(r); s.AtOnce.Most != 2 || s.AtOnce.Over != 1 || s.OK {
		t.Errorf("two at once: %s", s.AtOnce)
	}
}

func TestSummarizeCountsEveryMailOnce(t *testing.T) {
	t.Parallel()
	s := summarize(sampleResult(t))
	if s.Mails != 6 || s.Delivered != 2 || s.DeliveredEarlier != 1 || s.FailedForGood != 1 || s.GivenUp != 1 ||
		s.Left != 1 || s.Lost != 0 {
		t.Errorf("got %+v", s)
	}
	if s.Deferred != 1 || s.Duplicates != 0 || s.WindowsOver != 0 || s.OK {
		t.Errorf("got %+v", s)
	}
	if want := 3.0 / 5; s.PutBacksPerJob != want {
		t.Errorf("%v put-backs per job, want %v of the five mails not ended earlier", s.PutBacksPerJob, want)
	}
	if s.MakespanS != 2 || s.OptimumS != 1.5 || s.MakespanRatio == nil || *s.MakespanRatio != 2/1.5 {
		t.Errorf("makespan %v, optimum %v, ratio %v; want 2, 1.5 and their ratio", s.MakespanS, s.OptimumS, s.MakespanRatio)
	}
	if s.GrantToReceipt.LongestS != 0.02 || s.Limits[0].Record.WindowS != 0.98 || s.Limits[0].Record.Units != 2 {
		t.Errorf("record: grant to receipt %s, %+v", s.GrantToReceipt, s.Limits[0].Record)
	}
	if len(s.Tenants) != 2 || s.Tenants[0] !=
		(group{Key: "acme", Mails: 2, Units: 4, LastStartS: 2, WaitP50S: 0, WaitP99S: 1}) {
		t.Errorf("tenants: %+v", s.Tenants)
	}
}

// Windows are longer than the limit by the margin. So the checked windows of the record are as long as the limit's,
// unless a mail took longer than the margin.
func TestSummarizeMargin(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		margin                  time.Duration
		slow                    bool
		record, grants, optimum float64
		over                    int
	}{
		{0, true, 0.98, 1, 1.5, 0},
		{10 * time.Millisecond, true, 0.99, 1.01, 1.515, 2},
		{20 * time.Millisecond, false, 1, 1.02, 1.53, 3},
		{50 * time.Millisecond, false, 1.03, 1.05, 1.575, 5},
	} {
		r := sampleResult(t)
		r.law.Scopes = rig.WithMargin(r.law.Scopes, row.margin)
		s := summarize(r)
		use := s.Limits[0]
		if s.GrantToReceipt.Slow() != row.slow || use.Record.WindowS != row.record || use.Grants.WindowS != row.grants ||
			math.Abs(s.OptimumS-row.optimum) > 1e-9 || s.WindowsOver != row.over {
			t.Errorf("margin %s: %s, %+v, optimum %v, %d windows over", row.margin, s.GrantToReceipt, use, s.OptimumS,
				s.WindowsOver)
		}
	}
}

func TestSummarizeSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	twice := sampleResult(t)
	twice.receipts = append(twice.receipts,
		smtp.Receipt{At: twice.began.Add(time.Hour), Mail: "sent", Recipients: 2, Reply: 250})
	if s := summarize(twice); s.Duplicates != 1 || s.Delivered != 2 {
		t.Errorf("a second copy: %d duplicates, %d delivered; want 1, 2", s.Duplicates, s.Delivered)
	}
	missing := sampleResult(t)
	missing.receipts = missing.receipts[1:]
	if s := summarize(missing); s.Lost != 1 || s.Delivered != 1 {
		t.Errorf("a mail said to be sent: %d lost, %d delivered; want 1, 1", s.Lost, s.Delivered)
	}
	deleted := sampleResult(t)
	deleted.vanished = true
	if s := summarize(deleted); s.Lost != 1 || s.Left != 0 {
		t.Errorf("a mail deleted from asynq: %d lost, %d left; want 1, 0", s.Lost, s.Left)
	}
	early := sampleResult(t)
	early.granted[1].start = early.began.Add(999 * time.Millisecond)
	if s := summarize(early); s.WindowsOver != 1 || s.Limits[0].Grants.Over != 1 {
		t.Errorf("a start 1 ms early: %d windows over, want 1", s.WindowsOver)
	}
	burst := sampleResult(t)
	burst.receipts[1].Recipients = 3
	if s := summarize(burst); s.WindowsOver == 0 || s.Limits[0].Record.Over == 0 {
		t.Error("more recipients in the record than were granted: no window over")
	}
}

func TestSummarizeNothing(t *testing.T) {
	t.Parallel()
	s := summarize(result{campaign: sampleResult(t).campaign})
	if s.MakespanRatio != nil || s.Left != 6 || s.OK {
		t.Errorf("got %+v", s)
	}
}

func TestReportSaysItInWords(t *testing.T) {
	t.Parallel()
	r := sampleResult(t)
	r.interrupted = true
	var text bytes.Buffer
	writeReport(&text, summarize(r))
	for _, want := range []string{
		"campaign sample: 6 mails to 7 recipients", "by the record of the SMTP server",
		"in an earlier run, not sent again", "451 later", "550 nobody", "can never start",
		"0.60 times per mail", "1.333 of the optimum of 1.50 s", "at most 20.0 ms",
		"windows over their limit: 0", "Interrupted: 1 mails are left, run it again with the same -redis",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
}

// The keys that the JSON must have, whatever else it has.
func TestJSONKeys(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(summarize(sampleResult(t))); err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"mails", "delivered", "duplicates", "lost", "put_backs_per_job",
		"windows_over_limit", "makespan_s", "optimum_s", "makespan_ratio"} {
		if _, is := object[key].(float64); !is {
			t.Errorf("%s is %v, want a number", key, object[key])
		}
	}
}
