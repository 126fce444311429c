package delivery

import (
	"fmt"
	"io"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
)

// writeReport prints the summary for a person.
func writeReport(w io.Writer, s Summary) {
	fmt.Fprintf(w, "campaign %s: %d mails to %d recipients, queue %s\n\n", s.Campaign, s.Mails, s.Units, s.Queue)
	writeCounts(w, s)
	writeForecast(w, s.Forecast)
	writeGroups(w, "tenant", s.Tenants)
	writeLate(w, s.Late)
	writeRaised(w, s.Raised)
	writePauses(w, s)
	writeGroups(w, "domain", s.Domains)
	writePace(w, s)
	report.WriteLimits(w, s.Limits, s.Record, s.WindowsOver)
	writeVerdict(w, s)
}

func writeCounts(w io.Writer, s Summary) {
	report.WriteCounts(w, []report.Line{
		{Name: "delivered", Count: s.Delivered, Text: "by the record of the " + s.Record, Always: true},
		{Name: "delivered earlier", Count: s.DeliveredEarlier, Text: "in an earlier run, not sent again"},
		{Name: "failed for good", Count: s.FailedForGood, Text: "the server refused them (5xx)"},
		{Name: "given up", Count: s.GivenUp, Text: "no retries left, or never to fit their limits"},
		{Name: "left", Count: s.Left, Text: report.LeftText(s.inside)},
		{Name: "deferred", Count: s.Deferred, Text: "the server wanted them later (4xx), asynq sent them again",
			Always: true},
		{Name: "held up", Count: s.HeldUp, Text: "their domain asked to wait: put back, not charged, no retry spent"},
		{Name: "retries spent", Count: s.Retries, Text: "of asynq's", Always: true},
		{Name: "duplicates", Count: s.Duplicates, Text: "copies beyond the first", Always: true},
		{Name: "lost", Count: s.Lost, Text: "said to be sent, but not in the record; or gone from asynq", Always: true},
	})
	report.WriteNotes(w, s.Notes, func(n notice) (what, ended, reason string) { return n.Mail, n.Ended, n.Reason })
}

func writeGroups(w io.Writer, name string, groups []group) {
	if len(groups) == 0 {
		return
	}
	table := report.NewTable(w)
	fmt.Fprintf(table, "%s\tmails\tunits\tfirst start\tlast start\twait p50\twait p99\n", name)
	for _, g := range groups {
		fmt.Fprintf(table, "%s\t%5d\t%5d\t%9.2f s\t%8.2f s\t%6.2f s\t%6.2f s\n",
			g.Key, g.Mails, g.Units, g.FirstStartS, g.LastStartS, g.WaitP50S, g.WaitP99S)
	}
	table.Flush()
	fmt.Fprintln(w)
}

func writePace(w io.Writer, s Summary) {
	table := report.NewTable(w)
	fmt.Fprintf(table, "put back\t%.2f times per mail, %d times in all\n", s.PutBacksPerJob, s.PutBacks)
	fmt.Fprintf(table, "makespan\t%.2f s to the last start", s.MakespanS)
	if s.MakespanRatio != nil {
		fmt.Fprintf(table, ", %.3f of the optimum of %.2f s", *s.MakespanRatio, s.OptimumS)
	}
	fmt.Fprintf(table, "\ngrant to receipt\t%s\n", s.GrantToReceipt)
	fmt.Fprintf(table, "at once\tmails to one domain by the record of the %s: %s\n", s.Record, s.AtOnce)
	table.Flush()
	fmt.Fprintln(w)
}

func writeVerdict(w io.Writer, s Summary) {
	switch {
	case s.OK && s.FailedForGood > 0:
		fmt.Fprintln(w,
			"All mails arrived exactly once, but for those that the server refused for good; no window was over its limit.")
	case s.OK:
		fmt.Fprintln(w, "All mails arrived exactly once; no window was over its limit.")
	case s.Interrupted && s.Left > 0:
		fmt.Fprintf(w, "Interrupted: %d mails are left, %s.\n", s.Left, report.LeftText(s.inside))
	default:
		fmt.Fprintln(w,
			"NOT all is well: see given up, duplicates, lost, granted in spite of a pause, at once and windows "+
				"over their limit above.")
	}
}
