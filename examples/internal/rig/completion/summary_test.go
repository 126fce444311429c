package completion

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// sampleResult returns a run of three prompts, all of which end well.
func sampleResult() result {
	question := &prompt.Prompt{ID: "q", Kind: prompt.Interactive, Customer: "acme"}
	texts := []*prompt.Prompt{{ID: "t1", Kind: prompt.Batch, Customer: "acme"},
		{ID: "t2", Kind: prompt.Batch, Customer: "globex"}}
	r := result{
		model: "m", queue: "q", window: 10 * time.Second, began: began, recordOf: "provider", inside: true,
		scopes: []throttle.Scope{
			{Name: ScopeRequests, Limits: []throttle.Limit{throttle.Per(2, 10*time.Second)}},
			{Name: ScopeTokens, Limits: []throttle.Limit{throttle.Per(110, 10*time.Second)}},
			{Name: ScopeBudget, Limits: []throttle.Limit{throttle.PerDay(135)}},
		},
		outcomes: []outcome{
			{prompt: texts[0], state: answered, arrived: at(0)},
			{prompt: texts[1], state: answered, arrived: at(0)}, {prompt: question, state: answered, arrived: at(11)},
		},
		granted: []grant{
			{prompt: texts[0], start: at(0), charged: 60, settled: 60, told: true, ended: true},
			{prompt: texts[1], start: at(0), charged: 50, settled: 40, told: true, less: at(0.5), ended: true},
			{prompt: question, start: at(10), charged: 75, settled: 75, ended: true, returned: true, less: at(11)},
			{prompt: question, start: at(12), charged: 75, settled: 70, told: true, less: at(13.5), ended: true},
		},
		requests: []provider.Request{served("t1", 0, 60), served("t2", 0, 40), refused(10), served("q", 12, 70)},
		served:   levels(), charged: 170, putBacks: 6,
	}
	r.requests[1].Customer = "globex"
	return r
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	s := summarize(sampleResult())
	if !s.OK || s.Prompts != 3 || s.Answered != 3 || s.Requests != 3 || s.Tokens != 170 || s.Refused429 != 1 ||
		s.RefusedAfterAdapting != 1 || s.WindowsOver != 0 || s.DailyBudgetOver != 0 {
		t.Errorf("got %+v", s)
	}
	if s.ChargedUnits != 185 || s.SettledUnits != 170 || s.BudgetUnits != 170 || s.PutBacksPerJob != 2 ||
		s.InteractiveP99S != 1.5 || s.BatchP99S != 0.5 || s.MakespanS != 12 || s.Utilisation != nil {
		t.Errorf("got %+v", s)
	}
	want := []customerRow{{Customer: "acme", Prompts: 2, Answered: 2, Tokens: 130, Budget: 135},
		{Customer: "globex", Prompts: 1, Answered: 1, Tokens: 40, Budget: 135}}
	if !slices.Equal(s.Customers, want) {
		t.Errorf("got %+v, want %+v", s.Customers, want)
	}
}

// Prompts that the budgets do not allow today are well.
func TestSummarizeBudgets(t *testing.T) {
	t.Parallel()
	r := sampleResult()
	r.outcomes = append(r.outcomes, outcome{prompt: &prompt.Prompt{ID: "x", Customer: "acme"}, state: overBudget},
		outcome{prompt: &prompt.Prompt{ID: "y", Customer: "acme"}})
	r.tomorrow = true
	s := summarize(r)
	if !s.OK || s.OverBudget != 1 || s.ForTomorrow != 1 || s.Left != 0 || s.Customers[0].OverBudget != 1 ||
		s.Customers[0].ForTomorrow != 1 {
		t.Errorf("got %+v", s)
	}
}

// The report names whatever is not well, and is not OK.
func TestSummarizeTellsWhatIsNotWell(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(*result)
		want func(Summary) bool
	}{
		{"left", func(r *result) { r.outcomes[2].state = waiting }, func(s Summary) bool { return s.Left == 1 }},
		{"given up", func(r *result) { r.outcomes[2].state = gaveUp },
			func(s Summary) bool { return s.GivenUp == 1 && len(s.Notes) == 1 }},
		{"lost", func(r *result) { r.requests[3].ID = "other" }, func(s Summary) bool { return s.Lost == 1 }},
		{"duplicate", func(r *result) { r.requests[3].ID = "t1" }, func(s Summary) bool { return s.Duplicates == 1 }},
		{"requests", func(r *result) { r.requests[3].At, r.granted[3].start = at(9.9), at(9.9) },
			func(s Summary) bool { return s.WindowsOver == 5 }},
		{"tokens of the record", func(r *result) { r.requests[3].Prompt = 111 },
			func(s Summary) bool { return s.WindowsOver == 1 }},
		{"tokens of the grants", func(r *result) { r.granted[3].charged = 111 },
			func(s Summary) bool { return s.WindowsOver == 1 }},
		{"tokens of a grant that is given back", func(r *result) { r.granted[2].charged = 111 },
			func(s Summary) bool { return s.WindowsOver == 1 }},
		{"a request that is refused", func(r *result) { r.requests[2].Prompt = 111 },
			func(s Summary) bool { return s.WindowsOver == 1 }},
		{"refused late", func(r *result) { r.ownSays = true }, func(s Summary) bool { return s.RefusedAfterAdapting == 1 }},
		{"a budget", func(r *result) { r.scopes[2].Limits[0].Units = 129 },
			func(s Summary) bool { return s.DailyBudgetOver == 3 && s.WindowsOver == 0 }},
		{"a charge", func(r *result) { r.granted[3].settled++ }, func(s Summary) bool { return s.Mischarged == 1 }},
		{"the throttle's account", func(r *result) { r.charged-- },
			func(s Summary) bool { return s.Mischarged == 0 && !s.BudgetsRight }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := sampleResult()
			row.do(&r)
			s := summarize(r)
			var text bytes.Buffer
			writeReport(&text, s)
			if s.OK || !row.want(s) || !strings.Contains(text.String(), "NOT all is well") {
				t.Errorf("got %+v\n%s", s, text.String())
			}
		})
	}
}

// On a machine that is slower than the margin, the provider refuses requests that it should not refuse.
func TestSummarizeSlow(t *testing.T) {
	t.Parallel()
	r := sampleResult()
	r.ownSays, r.requests[3].At, r.scopes = true, at(12.3), rig.WithMargin(r.scopes, 200*time.Millisecond)
	r.granted[0].start, r.granted[1].start = at(-0.25), at(-0.25) // a window and the margin before the third
	if s := summarize(r); !s.OK || !s.GrantToRequest.Slow() || s.RefusedAfterAdapting != 1 {
		t.Errorf("got %+v", s)
	}
}

// The report names a charge that could not be settled, and nothing else is wrong with it. The other charges are still
// compared with the record.
func TestSummarizeUnsettled(t *testing.T) {
	t.Parallel()
	r := sampleResult()
	r.granted[3].settled, r.granted[3].told, r.charged, r.scopes[2].Limits[0].Units = 75, false, 175, 140
	if s := summarize(r); !s.OK || s.Unsettled != 1 || s.SettledUnits != 175 || s.Tokens != 170 {
		t.Errorf("got %+v", s)
	}
	r.granted[0].settled--
	if s := summarize(r); s.OK || s.Unsettled != 1 || s.Mischarged != 1 {
		t.Errorf("got %+v", s)
	}
	r.granted[0].settled++
	r.granted[3].used.TotalTokens = 70 // it was answered that the charge could not be settled, and it may have been
	for _, charged := range []int64{169, 170, 175, 176} {
		r.charged = charged
		if s := summarize(r); s.BudgetsRight != (charged >= 170 && charged <= 175) {
			t.Errorf("%d tokens in the account: right %t", charged, s.BudgetsRight)
		}
	}
}

func TestJSONHasTheFigures(t *testing.T) {
	t.Parallel()
	r := sampleResult()
	r.outcomes[2].prompt.Kind = prompt.Batch // so that it was busy
	text, err := json.Marshal(summarize(r))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"requests", "tokens", "refused_429", "refused_after_adapting", "utilisation", "interactive_p99_s", "batch_p99_s",
		"put_backs_per_job", "windows_over_limit", "settled_units", "charged_units", "daily_budget_over",
	} {
		if _, isNumber := fields[name].(float64); !isNumber {
			t.Errorf("%s is %v, want a number", name, fields[name])
		}
	}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	for _, r := range []result{sampleResult(), {window: time.Second, served: levels()}} {
		if err := writePlot(filepath.Join(t.TempDir(), "run.svg"), r); err != nil {
			t.Error(err)
		}
	}
	less := result{began: began, served: levels()}.incidents(60)
	if len(less) != 1 || less[0].From != 40 || less[0].Until != 80 {
		t.Errorf("less was served in %v, want from 40 s to 80 s", less)
	}
}
