package delivery

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
)

// plannedResult returns a run with two mails at the beginning and one later.
func plannedResult(t *testing.T) result {
	t.Helper()
	r := arrivedResult(t, mailText("a1", "0s", "a", 1)+mailText("a2", "0s", "a", 1)+mailText("b1", "3s", "b", 1),
		"global=1/1s")
	after := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	mails := r.campaign.ByID
	r.expected = expectations{
		first: map[*campaign.Mail]time.Time{mails["a1"]: after(0), mails["a2"]: after(4000)},
		later: map[*campaign.Mail]time.Time{mails["b1"]: after(5000)},
		ends:  []expectedEnd{{after(-10), after(4000)}, {after(3500), after(5500)}},
	}
	for _, start := range []struct {
		ms   int
		mail string
	}{{50, "a1"}, {3500, "a2"}, {5250, "b1"}} {
		r.granted = append(r.granted, grant{start: after(start.ms), mail: mails[start.mail]})
	}
	return r
}

func TestForecastAgainstReality(t *testing.T) {
	t.Parallel()
	want := &forecast{
		First:       deviation{Mails: 2, MeanS: 0.275, MaxS: 0.5},
		Undisturbed: deviation{Mails: 1, MeanS: 0.05, MaxS: 0.05},
		DisturbedS:  3,
		Later:       deviation{Mails: 1, MeanS: 0.25, MaxS: 0.25},
		Ends:        []endExpected{{0, 4}, {3.5, 5.5}},
		EndS:        5.25, EndOffS: 1.25,
	}
	if diff := cmp.Diff(want, plannedResult(t).forecast()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	for name, change := range map[string]func(*result){
		"nothing planned": func(r *result) { r.expected = expectations{} },
		"interrupted":     func(r *result) { r.interrupted = true },
		"nothing started": func(r *result) { r.granted = nil },
	} {
		r := plannedResult(t)
		change(&r)
		if f := r.forecast(); f != nil {
			t.Errorf("%s: got %+v, want nothing", name, f)
		}
	}
}

func TestDisturbed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*result)
		want   float64
	}{
		"a mail that came later":  {func(*result) {}, 3},
		"a pause":                 {func(r *result) { r.pauses = []pause{{known: zero.Add(time.Second)}} }, 1},
		"a step":                  {func(r *result) { r.law.Changes = []check.Change{{At: zero.Add(2 * time.Second)}} }, 2},
		"a step at the beginning": {func(r *result) { r.law.Changes = []check.Change{{At: zero.Add(-time.Second)}} }, 3},
		"a second attempt":        {func(r *result) { r.granted[1].mail = r.granted[0].mail; r.expected.later = nil }, 3.5},
		"nothing, until the end":  {func(r *result) { r.expected.later = nil }, 5.250001},
	} {
		r := plannedResult(t)
		row.change(&r)
		if got := r.since(r.disturbed()); got != row.want {
			t.Errorf("%s: got %v, want %v", name, got, row.want)
		}
	}
}

func TestForecastIsReported(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	writeReport(&text, summarize(plannedResult(t)))
	for _, want := range []string{
		"planned at the beginning         2          0.275 s    0.50 s",
		"  undisturbed until 3.00 s       1          0.050 s    0.05 s",
		"planned later                    1          0.250 s    0.25 s", "it was at 5.2 s: +1.2 s off the first",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
}

func TestTogether(t *testing.T) {
	t.Parallel()
	r := arrivedResult(t, mailText("a1", "0s", "a", 1)+mailText("a2", "0s", "a", 1)+mailText("b1", "3s", "b", 1), "")
	sizes := func(batches [][]*campaign.Mail) (n []int) {
		for _, mails := range batches {
			n = append(n, len(mails))
		}
		return n
	}
	if diff := cmp.Diff([]int{2, 1}, sizes(together(r.campaign.Mails, false))); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if diff := cmp.Diff([]int{3}, sizes(together(r.campaign.Mails, true))); diff != "" {
		t.Errorf("of an earlier run: want -, got +\n%s", diff)
	}
	if batches := together(nil, false); batches != nil {
		t.Errorf("of nothing: %v", batches)
	}
}
