package completion

import (
	"fmt"
	"io"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
)

// writeReport prints the summary for a person.
func writeReport(w io.Writer, s Summary) {
	fmt.Fprintf(w, "model %s, queue %s: %d prompts, %d requests served, %d tokens\n\n", s.Model, s.Queue, s.Prompts,
		s.Requests, s.Tokens)
	writeCounts(w, s)
	writeCustomers(w, s.Customers)
	writePace(w, s)
	report.WriteLimits(w, s.Limits, s.Record, s.WindowsOver+s.DailyBudgetOver)
	writeVerdict(w, s)
}

func writeCounts(w io.Writer, s Summary) {
	report.WriteCounts(w, []report.Line{
		{Name: "answered", Count: s.Answered, Text: "prompts, by the " + s.Record, Always: true},
		{Name: "answered earlier", Count: s.AnsweredEarlier, Text: "of these, in an earlier run, not asked again"},
		{Name: "over budget", Count: s.OverBudget, Text: "interactive, their customer's budget is used up: told so at once"},
		{Name: "for tomorrow", Count: s.ForTomorrow, Text: "batch, their customer's budget is used up: they wait in line"},
		{Name: "given up", Count: s.GivenUp, Text: "refused for good, or no retries left"},
		{Name: "left", Count: s.Left, Text: report.LeftText(s.inside)},
		{Name: "refused", Count: s.Refused429,
			Text: "requests that the provider had no room for (429): put back, not charged, no retry spent", Always: true},
		{Name: "refused late", Count: s.RefusedAfterAdapting,
			Text: "of these, later than two windows after it began to serve less or more", Always: true},
		{Name: "unsettled", Count: s.Unsettled,
			Text: "requests: nobody told what they took, or Redis was away; their charge stays as estimated"},
		{Name: "duplicates", Count: s.Duplicates, Text: "answers beyond the first", Always: true},
		{Name: "mischarged", Count: s.Mischarged, Text: "prompts whose final charge is not what they took",
			Always: true},
		{Name: "lost", Count: s.Lost, Text: "said to be answered, but not in the record", Always: true},
	})
	report.WriteNotes(w, s.Notes, func(n notice) (what, ended, reason string) { return n.Prompt, "given up", n.Reason })
}

func writeCustomers(w io.Writer, rows []customerRow) {
	table := report.NewTable(w)
	fmt.Fprintln(table, "customer\tprompts\tanswered\tover budget\tfor tomorrow\ttokens\tday budget")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%7d\t%8d\t%11d\t%12d\t%6d\t%10d\n", r.Customer, r.Prompts, r.Answered, r.OverBudget,
			r.ForTomorrow, r.Tokens, r.Budget)
	}
	table.Flush()
	fmt.Fprintln(w)
}

func writePace(w io.Writer, s Summary) {
	table := report.NewTable(w)
	fmt.Fprintf(table, "interactive\thalf answered within %.2f s, 99 of 100 within %.2f s\n", s.InteractiveP50S,
		s.InteractiveP99S)
	fmt.Fprintf(table, "batch\thalf answered within %.2f s, 99 of 100 within %.2f s\n", s.BatchP50S, s.BatchP99S)
	if s.Utilisation != nil {
		fmt.Fprintf(table,
			"used\t%.3f of what was served while there was work for it; of the tokens %.3f, of the requests %.3f\n",
			*s.Utilisation, *s.UtilisationTokens, *s.UtilisationRequests)
	}
	fmt.Fprintf(table, "put back\t%.2f times per prompt, %d times in all\n", s.PutBacksPerJob, s.PutBacks)
	fmt.Fprintf(table, "charged\t%d tokens by estimate, %d when settled; by the %s %d\n", s.ChargedUnits,
		s.SettledUnits, s.Record, s.Tokens)
	fmt.Fprintf(table, "budgets\t%d tokens, by the throttle's account of this run%s\n", s.BudgetUnits, budgetsText(s))
	fmt.Fprintf(table, "makespan\t%.2f s to the last request\n", s.MakespanS)
	fmt.Fprintf(table, "grant to request\t%s\n", s.GrantToRequest)
	if s.GrantToRequest.Slow() {
		fmt.Fprintln(table, "\tthis machine is too busy to say why requests were refused late")
	}
	table.Flush()
	fmt.Fprintln(w)
}

func budgetsText(s Summary) string {
	if s.BudgetsRight {
		return ""
	}
	return ": NOT what was settled"
}

func writeVerdict(w io.Writer, s Summary) {
	switch {
	case s.OK && s.ForTomorrow+s.OverBudget > 0:
		fmt.Fprintln(w, "All prompts were answered that the budgets of the day allow; every limit was kept.")
	case s.OK:
		fmt.Fprintln(w, "All prompts were answered; every limit and budget was kept.")
	case s.Interrupted && s.Left > 0:
		fmt.Fprintf(w, "Interrupted: %d prompts are left, %s.\n", s.Left, report.LeftText(s.inside))
	default:
		fmt.Fprintln(w,
			"NOT all is well: see given up, left, refused late, duplicates, mischarged, lost, budgets and windows "+
				"over their limit above.")
	}
}
