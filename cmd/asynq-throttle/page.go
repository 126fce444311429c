package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

// page is text for people.
type page struct {
	w       io.Writer
	colours bool
}

// line prints a line. A terminal obeys nothing of its arguments but our colours.
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

// table prints rows of cells below their heads. A terminal obeys nothing of a cell.
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

// bad and good are marked where a terminal shows colours. They stand at a line's end or
// alone: a table's columns would not line up.
func (g *page) bad(text string) coloured  { return g.coloured("31", text) }
func (g *page) good(text string) coloured { return g.coloured("32", text) }

// coloured is text that was made printable, with our colours around it.
type coloured string

func (g *page) coloured(colour, text string) coloured {
	text = view.Printable(text)
	if g.colours {
		text = "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	return coloured(text)
}

// more says how many rows are not shown.
func (g *page) more(shown, inAll int) {
	if inAll > shown {
		g.line("… and %d more; -n %d shows all", inAll-shown, inAll)
	}
}

// at is an instant in the reader's zone, and how far it is from now: both on Redis' clock.
func at(instant, now time.Time) string {
	if instant.IsZero() {
		return "–"
	}
	local, today := instant.Local(), now.Local()
	format := "15:04:05"
	if local.Format(time.DateOnly) != today.Format(time.DateOnly) {
		format = "2006-01-02 15:04:05"
	}
	return local.Format(format) + " (" + relative(instant.Sub(now)) + ")"
}

// roomAt is when a limit has room, "by" where leases tell it.
func roomAt(limit string, free, now time.Time) string {
	if view.Leased(limit) && free.After(now) {
		return "by " + at(free, now)
	}
	return at(free, now)
}

// since is for how long something has been so.
func since(instant, now time.Time) string {
	if instant.IsZero() {
		return "–"
	}
	return view.Span(now.Sub(instant))
}

func relative(d time.Duration) string {
	switch {
	case d.Abs() < 100*time.Millisecond:
		return "now"
	case d < 0:
		return view.Span(-d) + " ago"
	}
	return "in " + view.Span(d)
}

// scopeKey names a scope key for people.
func scopeKey(scope, key string) string {
	if key == "" {
		return scope
	}
	return scope + " " + plain(key)
}

// mostShown is how much of a name is shown.
const mostShown = 60

// plain shows a name that users made: quoted where a terminal might take it for something
// else, and not without end.
func plain(name string) string {
	runes := []rune(name)
	rest := ""
	if len(runes) > mostShown {
		runes, rest = runes[:mostShown], "…"
	}
	for _, r := range runes {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar || r == ' ' || r == '"' {
			return strconv.Quote(string(runes)) + rest
		}
	}
	return string(runes) + rest
}

// many is how many there are of something.
func many[N int | int64](n N, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// percent is a part of a limit.
func percent(ratio float64) string {
	if ratio < 0 {
		return "–"
	}
	return strconv.FormatFloat(ratio*100, 'f', 0, 64) + " %"
}
