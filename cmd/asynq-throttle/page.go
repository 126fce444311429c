package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// page is the output for people.
type page struct {
	w       io.Writer
	colours bool
}

// line prints a line. It escapes control characters in the arguments, so that a terminal shows no colours but ours.
func (g *page) line(format string, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case coloured:
		case string:
			args[i] = view.Printable(arg)
		case error:
			args[i] = view.Printable(arg.Error())
		case fmt.Stringer:
			args[i] = view.Printable(arg.String())
		}
	}
	fmt.Fprintf(g.w, format+"\n", args...)
}

// table prints rows of cells below their heads, with the control characters of cells escaped.
func (g *page) table(heads []string, rows [][]string) {
	t := tabwriter.NewWriter(g.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(heads, "\t"))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = view.Printable(cell)
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // to a strings.Builder
}

// bad and good colour text if the terminal shows colours. Use them at the end of a line or alone,
// since colours break the alignment of a table's columns.
func (g *page) bad(text string) coloured  { return g.coloured("31", text) }
func (g *page) good(text string) coloured { return g.coloured("32", text) }

// coloured is printable text with our colours around it.
type coloured string

func (g *page) coloured(colour, text string) coloured {
	text = view.Printable(text)
	if g.colours {
		text = "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	return coloured(text)
}

// more prints how many rows are not shown.
func (g *page) more(shown, inAll int) {
	if inAll > shown {
		g.line("… and %d more; -n %d shows all", inAll-shown, inAll)
	}
}

// at formats an instant in the reader's zone, and how far it is from now; both are on Redis' clock.
func at(instant, now time.Time) string {
	if instant.IsZero() {
		return "–"
	}
	local, today := instant.Local(), now.Local()
	format := "15:04:05"
	if local.Format(time.DateOnly) != today.Format(time.DateOnly) {
		format = "2006-01-02 15:04:05"
	}
	return local.Format(format) + " (" + view.Far(instant, now) + ")"
}

// roomAt formats when a limit has room, with "by" if the end of a lease decides that.
func roomAt(limit string, free, now time.Time) string {
	if view.Leased(limit) && free.After(now) {
		return "by " + at(free, now)
	}
	return at(free, now)
}

// room formats when a limit, if there is one, has room for one unit, and when it begins anew if that is later.
func room(mode throttle.Mode, paused time.Time, limit, hours string, free, anew, now time.Time) string {
	text := roomAt(limit, free, now)
	switch {
	case mode != throttle.Enforce:
		return view.DelaysNothing(mode)
	case !paused.IsZero():
		return "paused until " + at(paused, now)
	case hours != "":
		return hours
	case limit == "":
		return "no limit"
	case free.IsZero():
		return "closed"
	case !free.After(now):
		text = "now"
	}
	if anew.After(free) {
		text += ", anew " + at(anew, now)
	}
	return text
}

// since formats how long a state has lasted.
func since(instant, now time.Time) string {
	if instant.IsZero() {
		return "–"
	}
	return view.Span(now.Sub(instant))
}
