package delivery

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
)

func TestLatecomer(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		mails []string
		want  []string
	}{
		{"one tenant", []string{mailText("a1", "0s", "a", 1), mailText("a2", "1s", "a", 1)}, nil},
		{"all at once", []string{mailText("a1", "0s", "a", 1), mailText("b1", "0s", "b", 1)}, nil},
		{"two come last", []string{mailText("a1", "0s", "a", 1), mailText("b1", "1s", "b", 1),
			mailText("c1", "1s", "c", 1)}, nil},
		{"the last of three", []string{
			mailText("a1", "0s", "a", 1), mailText("b1", "1s", "b", 1), mailText("c1", "2s", "c", 1),
			mailText("b2", "3s", "b", 1), mailText("c2", "4s", "c", 1),
		}, []string{"c1", "c2"}},
	} {
		var got []string
		for _, m := range latecomer(arrivedResult(t, strings.Join(row.mails, ""), "").campaign) {
			got = append(got, m.ID)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: want -, got +\n%s", row.name, diff)
		}
	}
}

// lateResult returns a run in which two mails of b come after one mail of a.
func lateResult(t *testing.T) result {
	t.Helper()
	r := arrivedResult(t, mailText("a1", "0s", "a", 1)+mailText("b1", "1s", "b", 1)+mailText("b2", "2s", "b", 3),
		"global=4/1s")
	for _, start := range []struct {
		mail       string
		was, would time.Duration
	}{{"a1", 0, 0}, {"b1", 1500 * time.Millisecond, 4 * time.Second},
		{"b2", 2250 * time.Millisecond, 6500 * time.Millisecond}} {
		m := r.campaign.ByID[start.mail]
		r.granted = append(r.granted, grant{start: zero.Add(start.was), mail: m})
		r.firstCome = append(r.firstCome, grant{start: zero.Add(start.would), mail: m})
	}
	// A second attempt does not make the wait longer.
	r.granted = append(r.granted, grant{start: zero.Add(time.Minute), mail: r.campaign.ByID["b2"]})
	return r
}

func TestLate(t *testing.T) {
	t.Parallel()
	want := &lateTenant{Tenant: "b", Mails: 2, Units: 4, ArrivalS: 1, WaitS: 0.5, FirstComeWaitS: 4.5}
	if diff := cmp.Diff(want, lateResult(t).late()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	for name, change := range map[string]func(*result){
		"a mail not started": func(r *result) { r.granted = r.granted[:2] },
		"no comparison":      func(r *result) { r.firstCome = nil },
		"nobody is late":     func(r *result) { r.campaign.ByID["a1"].Tenant = "b" },
	} {
		r := lateResult(t)
		change(&r)
		if late := r.late(); late != nil {
			t.Errorf("%s: got %+v, want nothing", name, *late)
		}
	}
}

func TestLateIsReported(t *testing.T) {
	t.Parallel()
	s := summarize(lateResult(t))
	var text, object bytes.Buffer
	writeReport(&text, s)
	want := "late tenant   mails   units   first arrival   longest wait   first come, first served\n" +
		"b                 2       4          1.00 s         0.50 s                     4.50 s\n\n"
	if !strings.Contains(text.String(), want) {
		t.Errorf("the report lacks\n%sin\n%s", want, text.String())
	}
	if err := json.NewEncoder(&object).Encode(s); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Late map[string]any `json:"late_tenant"`
	}
	if err := json.Unmarshal(object.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{
		"tenant": "b", "mails": 2.0, "units": 4.0, "arrival_s": 1.0, "wait_s": 0.5, "first_come_wait_s": 4.5,
	}, got.Late); diff != "" {
		t.Errorf("JSON: want -, got +\n%s", diff)
	}

	text.Reset()
	writeReport(&text, summarize(sampleResult(t)))
	if strings.Contains(text.String(), "late tenant") {
		t.Errorf("a run without a comparison has a late tenant:\n%s", text.String())
	}
}

// When the small tenant comes, the others have far more mails in line than are sent meanwhile.
func TestBundledCampaignHasALateTenant(t *testing.T) {
	t.Parallel()
	c, err := campaign.Open("")
	if err != nil {
		t.Fatal(err)
	}
	late := latecomer(c)
	if len(late) < 5 || len(late) > 20 || late[0].At != 5*time.Second {
		t.Fatalf("%d mails of a late tenant, want about ten after 5 s", len(late))
	}
	const perSecond = 40 // of all, by defaultLimits
	var before int64
	for _, m := range c.Mails {
		if m.At < late[0].At {
			before += m.Units()
		}
	}
	if inLine := before - 6*perSecond; inLine < 5*perSecond {
		t.Errorf("%d units in line are less than five seconds' worth", inLine)
	}
}
