// Package report has the common parts of the examples' reports: the use of limits, tables,
// and notes of what went wrong.
package report

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// LimitUse is the worst use of one limit, by the record and by the grants of a run.
type LimitUse struct {
	Unit   string    `json:"unit,omitempty"` // the limit's unit, if limits have several
	Scope  string    `json:"scope"`
	Limit  string    `json:"limit"`
	Units  *int64    `json:"units,omitempty"` // the units of the limit
	Record WindowUse `json:"record"`
	Grants WindowUse `json:"grants"`
}

// WindowUse is the fullest window or period of one limit, or what came outside of hours.
type WindowUse struct {
	WindowS float64 `json:"window_s"` // its checked length; 0 for a quota, hours, and a window shorter than the delay
	// Period is, for a quota, the date on which its fullest period began, or None; for hours it is Closed.
	Period string `json:"period,omitempty"`
	Key    string `json:"key"`
	Units  int64  `json:"units"`
	Over   int    `json:"over"` // windows, periods, or events outside of hours
}

// Closed is the Period of hours. Their units are those that came while the hours were closed.
const Closed = "closed"

// None is the Period of a quota under which nothing came, for example of a step that a ramp has not reached.
const None = "none"

// Uses returns a row for each limit, and how many windows and periods were over their limit in all, plus the number of
// events outside of hours. The record and the grants are under the same limits, but the record may count in smaller
// units: "per" of them make one unit of a limit.
func Uses(unit string, per int64, record, granted []check.Use) (rows []LimitUse, over int) {
	for i := range record {
		rows = append(rows, LimitUse{
			Unit: unit, Scope: granted[i].Scope, Limit: granted[i].Limit.String(),
			Record: useOf(record[i], per), Grants: useOf(granted[i], 1),
		})
	}
	return rows, check.WindowsOver(record) + check.WindowsOver(granted)
}

func useOf(u check.Use, per int64) WindowUse {
	use := WindowUse{WindowS: u.Window.Seconds(), Key: u.Key, Units: (u.Worst + per - 1) / per, Over: u.Over}
	switch {
	case u.Limit.Hours != "":
		use.Period = Closed
	case u.Limit.Calendar != throttle.Calendar{}:
		use.Period = None
		if zone, err := time.LoadLocation(u.Limit.Zone()); err == nil && !u.Period.IsZero() {
			use.Period = u.Period.In(zone).Format(time.DateOnly)
		}
	}
	return use
}

// AtOnce is how many units of a running limit were in use at once, by a record.
type AtOnce struct {
	Scope string `json:"scope"`
	Limit string `json:"limit"`
	Key   string `json:"key"` // the key with the most in use
	Most  int64  `json:"most"`
	Over  int    `json:"over"` // how many began while the limit was full
}

// AtOnceOf returns a use in the form of the report.
func AtOnceOf(scope string, u check.AtOnce) AtOnce {
	return AtOnce{Scope: scope, Limit: u.Limit.String(), Key: u.Key, Most: u.Worst, Over: u.Over}
}

// String returns a line about it.
func (a AtOnce) String() string {
	return fmt.Sprintf("at most %d under the limit %s (%s); over it: %d times", a.Most, a.Limit, a.Key, a.Over)
}

// WriteLimits prints how limits were used, by the record and by the grants.
func WriteLimits(w io.Writer, limits []LimitUse, keptBy string, windowsOver int) {
	if len(limits) == 0 {
		return
	}
	table := NewTable(w)
	fmt.Fprintf(table, "limit\tworst use, %s\twindow\tworst use, grants\twindow\n", keptBy)
	for _, l := range limits {
		name := l.Scope + " " + l.Limit
		if l.Unit != "" {
			name += " " + l.Unit
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, useText(l.Record), windowText(l.Record), useText(l.Grants),
			windowText(l.Grants))
	}
	table.Flush()
	fmt.Fprintf(w, "windows over their limit: %d\n\n", windowsOver)
}

func useText(u WindowUse) string {
	if u.WindowS == 0 && u.Period == "" {
		return "not checked"
	}
	text := fmt.Sprintf("%d %s", u.Units, u.Key)
	if u.Over > 0 {
		text += fmt.Sprintf(", %d %s", u.Over, overText(u))
	}
	return text
}

func overText(u WindowUse) string {
	switch u.Period {
	case "":
		return "windows over"
	case Closed:
		return "times outside"
	}
	return "periods over"
}

func windowText(u WindowUse) string {
	switch {
	case u.Period != "":
		return u.Period
	case u.WindowS == 0:
		return "shorter than the delay"
	}
	return fmt.Sprintf("%.3f s", u.WindowS)
}

// Delay is how long starts took from their grants to the record, and the margin that covers it.
type Delay struct {
	LongestS float64 `json:"longest_s"`
	MarginS  float64 `json:"margin_s"`
}

// DelayOf returns a delay in the form of the report.
func DelayOf(longest, margin time.Duration) Delay { return Delay{longest.Seconds(), margin.Seconds()} }

// Slow reports whether the delay is longer than the margin. Then the windows of the record are
// shorter than those of the limits.
func (d Delay) Slow() bool { return d.LongestS > d.MarginS }

// String returns a line about it.
func (d Delay) String() string {
	text := fmt.Sprintf("at most %.1f ms, ", d.LongestS*1000)
	if d.Slow() {
		return text + fmt.Sprintf("LONGER than the margin of %g ms: windows of the record are shorter than their limits'",
			d.MarginS*1000)
	}
	return text + fmt.Sprintf("within the margin of %g ms: no window of the record is shorter than its limit's",
		d.MarginS*1000)
}

// Line is one line of a table of counts.
type Line struct {
	Name   string
	Count  int
	Text   string
	Always bool // the line is printed even if the count is 0
}

// WriteCounts prints counts.
func WriteCounts(w io.Writer, lines []Line) {
	table := NewTable(w)
	for _, line := range lines {
		if line.Always || line.Count > 0 {
			fmt.Fprintf(table, "%s\t%5d\t%s\n", line.Name, line.Count, line.Text)
		}
	}
	table.Flush()
	fmt.Fprintln(w)
}

// maxNotes is how many notes are printed one by one.
const maxNotes = 20

// WriteNotes prints a line for each job that did not end well.
func WriteNotes[N any](w io.Writer, notes []N, words func(N) (what, ended, reason string)) {
	if len(notes) == 0 {
		return
	}
	table := NewTable(w)
	for _, note := range notes[:min(len(notes), maxNotes)] {
		what, ended, reason := words(note)
		fmt.Fprintf(table, "%s\t%s\t%s\n", what, ended, reason)
	}
	table.Flush()
	if more := len(notes) - maxNotes; more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	fmt.Fprintln(w)
}

// LeftText returns a text about what becomes of the jobs that are left.
func LeftText(inside bool) string {
	if inside {
		return "gone with the Redis inside this process"
	}
	return "run it again with the same -redis to go on with them"
}

// NewTable returns a writer that aligns columns separated by tabs. Flush it in the end.
func NewTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 3, ' ', 0) }
