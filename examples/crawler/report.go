package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// writeReport prints the summary for a person.
func writeReport(w io.Writer, s summary) {
	fmt.Fprintf(w, "seeds %s, queue %s: %d requests to %d hosts, %d KB\n\n", s.Seeds, s.Queue, s.Requests, s.Hosts, kilobytes(s.Bytes))
	writeCounts(w, s)
	writeNotes(w, s.Notes)
	writeHosts(w, s.ByHost)
	writePace(w, s)
	writeLimits(w, s)
	writeVerdict(w, s)
}

func writeCounts(w io.Writer, s summary) {
	table := newTable(w)
	for _, line := range []struct {
		name   string
		count  int
		text   string
		always bool
	}{
		{"fetched", s.Pages, "pages, by the " + s.Record, true},
		{"elsewhere", s.Elsewhere, "of these, in an earlier run or another process, not requested again", false},
		{"unchanged", s.Unchanged, "start pages that were asked for once more (304)", true},
		{"redirected", s.Redirected, "to pages of their own", true},
		{"too large", s.TooLarge, "cut at the size cap", true},
		{"absent", s.Absent, "4xx, or too many redirects in a row", true},
		{"disallowed", s.Disallowed, "by robots.txt, never requested", true},
		{"blocked", s.Blocked, "their address is not public, never requested", true},
		{"over budget", s.OverBudget, "more than their host's share, never requested", true},
		{"failed", s.Failed, "no answer, or 5xx, to the last", true},
		{"larger", s.Larger, "than their estimate, requested once more for a larger charge", true},
		{"left", s.Left, leftText(s), false},
		{"duplicates", s.Duplicates, "pages that were fetched twice", true},
		{"lost", s.Lost, "said to be fetched, but not in the record", true},
	} {
		if line.always || line.count > 0 {
			fmt.Fprintf(table, "%s\t%5d\t%s\n", line.name, line.count, line.text)
		}
	}
	table.Flush()
	fmt.Fprintln(w)
}

// maxNotes is how many pages with trouble are told one by one.
const maxNotes = 20

func writeNotes(w io.Writer, notes []notice) {
	if len(notes) == 0 {
		return
	}
	table := newTable(w)
	for _, note := range notes[:min(len(notes), maxNotes)] {
		fmt.Fprintf(table, "%s\t%s\t%s\n", note.Page, note.Ended, note.Reason)
	}
	table.Flush()
	if more := len(notes) - maxNotes; more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	fmt.Fprintln(w)
}

// leftText says what becomes of the pages that are left.
func leftText(s summary) string {
	if s.inside {
		return "gone with the Redis inside this process"
	}
	return "run it again with the same -redis to go on with them"
}

func writeHosts(w io.Writer, hosts []hostRow) {
	if len(hosts) == 0 {
		return
	}
	table := newTable(w)
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

func writePace(w io.Writer, s summary) {
	table := newTable(w)
	fmt.Fprintf(table, "put back\t%.2f times per request, %d times in all\n", s.PutBacksPerJob, s.PutBacks)
	fmt.Fprintf(table, "charged\t%d KB by estimate, %d KB when settled\n", s.ChargedUnits, s.SettledUnits)
	fmt.Fprintf(table, "makespan\t%.2f s to the last request\n", s.MakespanS)
	fmt.Fprintf(table, "grant to request\tat most %.1f ms; the windows of the record are taken shorter by it\n", s.GrantToRequestS*1000)
	fmt.Fprintf(table, "pauses\t%d asked for; requests to a paused host: %d\n", s.Pauses, s.PauseViolations)
	fmt.Fprintf(table, "robots.txt\trequests that it disallows: %d\n", s.RobotsViolations)
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
		fmt.Fprintf(table, "%s %s %s\t%s\t%s\t%s\t%s\n", l.Scope, l.Limit, l.Unit,
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
	case s.OK:
		fmt.Fprintln(w, "All pages that were found have ended; every limit, pause and robots.txt was kept.")
	case s.Interrupted && s.Left > 0:
		fmt.Fprintf(w, "Interrupted: %d pages are left, %s.\n", s.Left, leftText(s))
	default:
		fmt.Fprintln(w, "NOT all is well: see left, duplicates, lost, pauses, robots.txt and windows over their limit above.")
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
