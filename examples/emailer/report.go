package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// writeReport prints the summary for a person.
func writeReport(w io.Writer, s summary) {
	fmt.Fprintf(w, "campaign %s: %d mails to %d recipients, queue %s\n\n", s.Campaign, s.Mails, s.Units, s.Queue)
	writeCounts(w, s)
	writeForecast(w, s.Forecast)
	writeGroups(w, "tenant", s.Tenants)
	writeLate(w, s.Late)
	writeWarmup(w, s.Warmup)
	writePauses(w, s)
	writeGroups(w, "domain", s.Domains)
	writePace(w, s)
	writeLimits(w, s)
	writeVerdict(w, s)
}

func writeCounts(w io.Writer, s summary) {
	table := newTable(w)
	fmt.Fprintf(table, "delivered\t%5d\tby the record of the %s\n", s.Delivered, s.Record)
	for _, line := range []struct {
		name  string
		count int
		text  string
	}{
		{"delivered earlier", s.DeliveredEarlier, "in an earlier run, not sent again"},
		{"failed for good", s.FailedForGood, "the server refused them (5xx)"},
		{"given up", s.GivenUp, "no retries left, or never to fit their limits"},
		{"left", s.Left, leftText(s)},
	} {
		if line.count > 0 {
			fmt.Fprintf(table, "%s\t%5d\t%s\n", line.name, line.count, line.text)
		}
	}
	fmt.Fprintf(table, "deferred\t%5d\tthe server wanted them later (4xx), asynq sent them again\n", s.Deferred)
	if s.HeldUp > 0 {
		fmt.Fprintf(table, "held up\t%5d\ttheir domain asked to wait: put back, not charged, no retry spent\n", s.HeldUp)
	}
	fmt.Fprintf(table, "retries spent\t%5d\tof asynq's\n", s.Retries)
	fmt.Fprintf(table, "duplicates\t%5d\tcopies beyond the first\n", s.Duplicates)
	fmt.Fprintf(table, "lost\t%5d\tsaid to be sent, but not in the record; or gone from asynq\n", s.Lost)
	table.Flush()
	fmt.Fprintln(w)
	writeNotes(w, s.Notes)
}

// maxNotes is how many mails with trouble are told one by one.
const maxNotes = 20

func writeNotes(w io.Writer, notes []notice) {
	if len(notes) == 0 {
		return
	}
	table := newTable(w)
	for _, note := range notes[:min(len(notes), maxNotes)] {
		fmt.Fprintf(table, "%s\t%s\t%s\n", note.Mail, note.Ended, note.Reason)
	}
	table.Flush()
	if more := len(notes) - maxNotes; more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	fmt.Fprintln(w)
}

// leftText says what becomes of the mails that are left.
func leftText(s summary) string {
	if s.inside {
		return "gone with the Redis inside this process"
	}
	return "run it again with the same -redis to go on with them"
}

func writeGroups(w io.Writer, name string, groups []group) {
	if len(groups) == 0 {
		return
	}
	table := newTable(w)
	fmt.Fprintf(table, "%s\tmails\tunits\tfirst start\tlast start\twait p50\twait p99\n", name)
	for _, g := range groups {
		fmt.Fprintf(table, "%s\t%5d\t%5d\t%9.2f s\t%8.2f s\t%6.2f s\t%6.2f s\n",
			g.Key, g.Mails, g.Units, g.FirstStartS, g.LastStartS, g.WaitP50S, g.WaitP99S)
	}
	table.Flush()
	fmt.Fprintln(w)
}

func writePace(w io.Writer, s summary) {
	table := newTable(w)
	fmt.Fprintf(table, "put back\t%.2f times per mail, %d times in all\n", s.PutBacksPerJob, s.PutBacks)
	fmt.Fprintf(table, "makespan\t%.2f s to the last start", s.MakespanS)
	if s.MakespanRatio != nil {
		fmt.Fprintf(table, ", %.3f of the optimum of %.2f s", *s.MakespanRatio, s.OptimumS)
	}
	fmt.Fprintf(table, "\ngrant to receipt\tat most %.1f ms; the windows of the record are taken shorter by it\n", s.GrantToReceiptS*1000)
	table.Flush()
	fmt.Fprintln(w)
}

func writeLimits(w io.Writer, s summary) {
	if len(s.Limits) == 0 {
		return
	}
	table := newTable(w)
	fmt.Fprintf(table, "limit\tworst use, %s\twindow\tworst use, grants\twindow\n", s.Record)
	for _, l := range s.Limits {
		fmt.Fprintf(table, "%s %s\t%s\t%s\t%s\t%s\n", l.Scope, l.Limit,
			useText(l.Record), windowText(l.Record), useText(l.Grants), windowText(l.Grants))
	}
	table.Flush()
	fmt.Fprintf(w, "windows over their limit: %d\n\n", s.WindowsOver)
}

func useText(u windowUse) string {
	if u.WindowS == 0 {
		return "not checked"
	}
	text := fmt.Sprintf("%d %s", u.Units, u.Key)
	if u.Over > 0 {
		text += fmt.Sprintf(", %d windows over", u.Over)
	}
	return text
}

func windowText(u windowUse) string {
	if u.WindowS == 0 {
		return "shorter than the delay"
	}
	return fmt.Sprintf("%.3f s", u.WindowS)
}

func writeVerdict(w io.Writer, s summary) {
	switch {
	case s.OK && s.FailedForGood > 0:
		fmt.Fprintln(w, "All mails arrived exactly once, but for those that the server refused for good; no window was over its limit.")
	case s.OK:
		fmt.Fprintln(w, "All mails arrived exactly once; no window was over its limit.")
	case s.Interrupted && s.Left > 0:
		fmt.Fprintf(w, "Interrupted: %d mails are left, %s.\n", s.Left, leftText(s))
	default:
		fmt.Fprintln(w, "NOT all is well: see given up, duplicates, lost, granted in spite of a pause and windows over their limit above.")
	}
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 3, ' ', 0) }

// writeJSON prints the summary as one JSON object.
func writeJSON(w io.Writer, s summary) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
