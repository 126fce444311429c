package crawl

import (
	"fmt"
	"io"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
)

// writeReport prints the summary for a person.
func writeReport(w io.Writer, s Summary) {
	fmt.Fprintf(w, "seeds %s, queue %s: %d requests to %d hosts, %d KB\n\n", s.Seeds, s.Queue, s.Requests, s.Hosts,
		fetch.Kilobytes(s.Bytes))
	writeCounts(w, s)
	writeHosts(w, s.ByHost)
	writePace(w, s)
	report.WriteLimits(w, s.Limits, s.Record, s.WindowsOver)
	writeVerdict(w, s)
}

func writeCounts(w io.Writer, s Summary) {
	report.WriteCounts(w, []report.Line{
		{Name: "fetched", Count: s.Pages, Text: "pages, by the " + s.Record, Always: true},
		{Name: "elsewhere", Count: s.Elsewhere, Text: "of these, in an earlier run or another process, not requested again"},
		{Name: "unchanged", Count: s.Unchanged, Text: "start pages that were asked for once more (304)", Always: true},
		{Name: "redirected", Count: s.Redirected, Text: "to pages of their own", Always: true},
		{Name: "too large", Count: s.TooLarge, Text: "cut at the size cap", Always: true},
		{Name: "absent", Count: s.Absent, Text: "4xx, or too many redirects in a row", Always: true},
		{Name: "disallowed", Count: s.Disallowed, Text: "by robots.txt, never requested", Always: true},
		{Name: "blocked", Count: s.Blocked, Text: "their address is not public, never requested", Always: true},
		{Name: "over budget", Count: s.OverBudget, Text: "more than their host's share, never requested", Always: true},
		{Name: "failed", Count: s.Failed, Text: "no answer, or 5xx, to the last", Always: true},
		{Name: "larger", Count: s.Larger, Text: "than their estimate, requested once more for a larger charge", Always: true},
		{Name: "left", Count: s.Left, Text: report.LeftText(s.inside)},
		{Name: "duplicates", Count: s.Duplicates, Text: "pages that were fetched twice", Always: true},
		{Name: "lost", Count: s.Lost, Text: "said to be fetched, but not in the record", Always: true},
	})
	report.WriteNotes(w, s.Notes, func(n notice) (what, ended, reason string) { return n.Page, n.Ended, n.Reason })
}

func writeHosts(w io.Writer, hosts []hostRow) {
	if len(hosts) == 0 {
		return
	}
	table := report.NewTable(w)
	fmt.Fprintln(table, "host\trequests\tpages\tbytes\tcharged\tsettled\tpauses\tdelay\tfirst\tlast")
	for _, h := range hosts {
		delay := "-"
		if h.DelayS > 0 {
			delay = fmt.Sprintf("%g s", h.DelayS)
		}
		fmt.Fprintf(table, "%s\t%8d\t%5d\t%9d\t%5d KB\t%5d KB\t%6d\t%5s\t%5.2f s\t%5.2f s\n",
			h.Host, h.Requests, h.Pages, h.Bytes, h.Charged, h.Settled, h.Pauses, delay, h.FirstS, h.LastS)
	}
	table.Flush()
	fmt.Fprintln(w)
}

func writePace(w io.Writer, s Summary) {
	table := report.NewTable(w)
	fmt.Fprintf(table, "put back\t%.2f times per request, %d times in all\n", s.PutBacksPerJob, s.PutBacks)
	fmt.Fprintf(table, "charged\t%d KB by estimate, %d KB when settled\n", s.ChargedUnits, s.SettledUnits)
	fmt.Fprintf(table, "makespan\t%.2f s to the last request\n", s.MakespanS)
	fmt.Fprintf(table, "grant to request\t%s\n", s.GrantToRequest)
	fmt.Fprintf(table, "pauses\t%d asked for; requests to a paused host: %d\n", s.Pauses, s.PauseViolations)
	fmt.Fprintf(table, "at once\trequests to one address by the %s: %s\n", s.Record, s.AtOnce)
	fmt.Fprintf(table, "robots.txt\trequests that it disallows: %d\n", s.RobotsViolations)
	table.Flush()
	fmt.Fprintln(w)
}

func writeVerdict(w io.Writer, s Summary) {
	switch {
	case s.OK:
		fmt.Fprintln(w, "All pages that were found have ended; every limit, pause and robots.txt was kept.")
	case s.Interrupted && s.Left > 0:
		fmt.Fprintf(w, "Interrupted: %d pages are left, %s.\n", s.Left, report.LeftText(s.inside))
	default:
		fmt.Fprintln(w,
			"NOT all is well: see left, duplicates, lost, pauses, at once, robots.txt and windows over their limit above.")
	}
}
