package completion

import (
	"cmp"
	"slices"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
)

// Summary is the report as numbers; its JSON is what -json prints.
type Summary struct {
	Model string `json:"model"`
	Queue string `json:"queue"`

	Prompts         int `json:"prompts"`
	Answered        int `json:"answered"`
	AnsweredEarlier int `json:"answered_earlier"` // prompts that an earlier run answered
	OverBudget      int `json:"over_budget"`      // nobody waited for tomorrow's budget
	ForTomorrow     int `json:"for_tomorrow"`     // they wait for tomorrow's budget
	GivenUp         int `json:"given_up"`         // refused for good, or no retries left
	Left            int `json:"left"`             // prompts that had not ended when the run was interrupted
	Lost            int `json:"lost"`             // said to be answered, but not in the record
	// requests whose charge stays as estimated: the provider did not name their use, or Redis was away
	Unsettled  int `json:"unsettled"`
	Duplicates int `json:"duplicates"` // answers to a prompt beyond its first
	Mischarged int `json:"mischarged"` // prompts whose final charge differs from their use in the record

	Requests   int   `json:"requests"` // served requests, by the record
	Tokens     int64 `json:"tokens"`   // tokens of these requests, by the record
	Refused429 int   `json:"refused_429"`
	// of the refused, how many came later than two windows after a change of what is served
	RefusedAfterAdapting int `json:"refused_after_adapting"`
	WindowsOver          int `json:"windows_over_limit"` // windows over a limit, in the record and in the grants
	DailyBudgetOver      int `json:"daily_budget_over"`  // budgets over their limit, in the record and in the grants

	// how full the provider's windows were on average, of the fuller limit; null if there was no batch
	Utilisation         *float64 `json:"utilisation"`
	UtilisationRequests *float64 `json:"utilisation_requests"`
	UtilisationTokens   *float64 `json:"utilisation_tokens"`
	InteractiveP50S     float64  `json:"interactive_p50_s"` // from the arrival of a prompt to its answer
	InteractiveP99S     float64  `json:"interactive_p99_s"`
	BatchP50S           float64  `json:"batch_p50_s"`
	BatchP99S           float64  `json:"batch_p99_s"`
	MakespanS           float64  `json:"makespan_s"` // from the beginning to the last request

	PutBacks       int64   `json:"put_backs"`
	PutBacksPerJob float64 `json:"put_backs_per_job"` // a job is a prompt that was enqueued
	ChargedUnits   int64   `json:"charged_units"`     // tokens, by estimate, but for what was given back
	SettledUnits   int64   `json:"settled_units"`     // tokens, in the end
	// tokens that this run has charged to the budgets, by the throttle's account
	BudgetUnits  int64 `json:"budget_units"`
	BudgetsRight bool  `json:"budgets_right"` // BudgetUnits equals the settled tokens

	Record string `json:"record"` // who kept the record
	// how long requests took from their grants; if longer than the margin, requests may be refused
	GrantToRequest report.Delay      `json:"grant_to_request"`
	Limits         []report.LimitUse `json:"limits"`
	Customers      []customerRow     `json:"customers"`
	Notes          []notice          `json:"prompts_with_trouble"`

	Interrupted bool `json:"interrupted"`
	OK          bool `json:"ok"` // exit status 0

	inside bool
}

// customerRow is what happened to the prompts of one customer.
type customerRow struct {
	Customer    string `json:"customer"`
	Prompts     int    `json:"prompts"`
	Answered    int    `json:"answered"`
	OverBudget  int    `json:"over_budget"`
	ForTomorrow int    `json:"for_tomorrow"`
	Tokens      int64  `json:"tokens"` // tokens used, by the record
	Budget      int64  `json:"budget"` // tokens in a day
}

// notice is a prompt that was given up.
type notice struct {
	Prompt string `json:"prompt"`
	Reason string `json:"reason"`
}

// summarize works the result out.
func summarize(r result) Summary {
	s := Summary{
		Model: r.model, Queue: r.queue, Prompts: len(r.outcomes), PutBacks: r.putBacks, Record: r.recordOf,
		BudgetUnits: r.charged, Interrupted: r.interrupted, inside: r.inside,
	}
	s.countPrompts(r)
	s.countRequests(r)
	s.countCharges(r)
	s.checkWindows(r)
	s.Refused429, s.RefusedAfterAdapting = r.refusals()
	s.Utilisation, s.UtilisationRequests, s.UtilisationTokens = r.utilisation()
	interactive, batch := r.waits(prompt.Interactive), r.waits(prompt.Batch)
	s.InteractiveP50S, s.InteractiveP99S = account.Percentile(interactive, 50), account.Percentile(interactive, 99)
	s.BatchP50S, s.BatchP99S = account.Percentile(batch, 50), account.Percentile(batch, 99)
	s.Mischarged, s.BudgetsRight = r.mischarged(), r.budgetsRight()
	s.OK = s.GivenUp == 0 && s.Left == 0 && s.Lost == 0 && s.Duplicates == 0 && s.WindowsOver == 0 &&
		s.DailyBudgetOver == 0 &&
		s.Mischarged == 0 && s.BudgetsRight && (s.RefusedAfterAdapting == 0 || s.GrantToRequest.Slow() || !r.ownSays)
	return s
}

// countPrompts counts every prompt under how it ended.
func (s *Summary) countPrompts(r result) {
	rows := make(map[string]*customerRow)
	for _, o := range r.outcomes {
		row := rows[o.prompt.Customer]
		if row == nil {
			row = &customerRow{Customer: o.prompt.Customer, Budget: rig.LimitsOf(r.scopes, ScopeBudget)[0].Units}
			rows[o.prompt.Customer] = row
		}
		row.Prompts++
		switch {
		case o.state == answered:
			s.Answered++
			row.Answered++
		case o.state == overBudget:
			s.OverBudget++
			row.OverBudget++
		case o.state == gaveUp:
			s.GivenUp++
			s.Notes = append(s.Notes, notice{o.prompt.ID, o.reason})
		case r.tomorrow:
			s.ForTomorrow++
			row.ForTomorrow++
		default:
			s.Left++
		}
		if o.state == answered && o.earlier {
			s.AnsweredEarlier++
		}
	}
	for _, one := range r.answers() {
		if row := rows[one.Customer]; row != nil {
			row.Tokens += one.Tokens()
		}
	}
	for _, row := range rows {
		s.Customers = append(s.Customers, *row)
	}
	slices.SortFunc(s.Customers, func(a, b customerRow) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), strings.Compare(a.Customer, b.Customer))
	})
}

// countRequests compares the prompts with the record.
func (s *Summary) countRequests(r result) {
	served := make(map[string]int)
	for _, one := range r.answers() {
		s.Requests++
		s.Tokens += one.Tokens()
		served[one.ID]++
		s.MakespanS = max(s.MakespanS, r.since(one.At))
	}
	for _, o := range r.outcomes {
		n := served[o.prompt.ID]
		if o.state == answered && !o.earlier && n == 0 {
			s.Lost++
		}
		s.Duplicates += max(0, n-1)
	}
}

// countCharges adds up what the throttle has charged.
func (s *Summary) countCharges(r result) {
	for _, g := range r.granted {
		if !g.returned {
			s.ChargedUnits += g.charged
			s.SettledUnits += g.settled
			if !g.told {
				s.Unsettled++
			}
		}
	}
	enqueued := 0
	for _, o := range r.outcomes {
		if !o.arrived.IsZero() {
			enqueued++
		}
	}
	if enqueued > 0 {
		s.PutBacksPerJob = float64(s.PutBacks) / float64(enqueued)
	}
}
