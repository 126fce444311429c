package line

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
)

// edges has the periods of a ledger whose sub-windows are periods of a calendar. Their edges are instants of the
// clock: where the ledger's time goes on after a far step back of the clock, the edges are shifted with it.
type edges struct {
	offset int64 // of the ledger's time from the clock's

	// The last period that was found, by the ledger's time.
	last         int64
	begins, ends int64
}

// periodOf returns the sub-window of an instant.
func (e *edges) periodOf(text string, at int64) int64 {
	if at < e.begins || at >= e.ends {
		of := mustCalendar(text)
		e.last = of.Period(time.UnixMicro(at - e.offset))
		e.begins, e.ends = of.Edge(e.last).UnixMicro()+e.offset, of.Edge(e.last+1).UnixMicro()+e.offset
	}
	return e.last
}

// edgeOf returns the first instant of a sub-window.
func (e *edges) edgeOf(text string, period int64) int64 {
	if e.ends > 0 && period == e.last+1 {
		return e.ends
	}
	return mustCalendar(text).Edge(period).UnixMicro() + e.offset
}

// shift moves the edges to another offset.
func (e *edges) shift(offset int64) {
	if offset != e.offset {
		*e = edges{offset: offset}
	}
}

// opensAt returns the first instant from one on at which hours are open.
func opensAt(text string, at int64) int64 {
	of := mustHours(text)
	if opens := of.Opens(time.UnixMicro(at)).UnixMicro(); opens > at {
		return opens
	}
	return at
}

// turnsAt returns when hours open or close next; 0 if they do not, for long.
func turnsAt(text string, now int64) int64 {
	if opens := opensAt(text, now); opens > now {
		return opens
	}
	closes := mustHours(text).Closes(time.UnixMicro(now))
	if closes.IsZero() {
		return 0
	}
	return closes.UnixMicro()
}

// mustHours returns the hours of a span, which ParseSpan or Open made.
func mustHours(text string) *calendar.Hours {
	of, err := calendar.HoursOf(text)
	if err != nil {
		panic("line: " + err.Error())
	}
	return of
}

// mustCalendar returns the calendar of a span, which ParseSpan or Periods made.
func mustCalendar(text string) *calendar.Calendar {
	of, err := calendar.Of(text)
	if err != nil {
		panic("line: " + err.Error())
	}
	return of
}
