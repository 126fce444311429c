package line

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
)

// Kind says what a limit counts, and when a start leaves its ledger.
type Kind byte

// The kinds, by the letters that stand before the length of a Span.
const (
	// Sliding counts what starts within a window. A start leaves with the window.
	Sliding Kind = 'w'
	// Running counts what runs at once. A start leaves when its job has ended, or with its
	// lease, which may be renewed: a full ledger may have room at any time.
	Running Kind = 'r'
	// Quota counts what starts within a period of a calendar in a time zone. All starts leave at the
	// end of the period. A period is one sub-window.
	Quota Kind = 'z'
	// Hours lets starts through at its opening hours in a time zone. It counts nothing and has no ledger; its
	// Units are -1.
	Hours Kind = 'h'
)

// Renewed reports whether a grant notes its places, which its job renews and gives back. A full ledger may
// have room at any time.
func (k Kind) Renewed() bool { return k == Running }

// Settled reports whether a settlement corrects the charge of a start, and a report of the upstream adds debts.
func (k Kind) Settled() bool { return k == Sliding || k == Quota }

// Slides reports whether starts leave one after the other, so that the ledger tells what started in any time.
func (k Kind) Slides() bool { return k == Sliding }

// steps reports whether its units may grow from period to period.
func (k Kind) steps() bool { return k == Quota }

// opens reports whether only the time decides whether a start has room.
func (k Kind) opens() bool { return k == Hours }

// logged reports whether Lua moves the oldest of many entries into a log. Such a ledger may become coarser.
func (k Kind) logged() bool { return k == Sliding }

// Span is what tells the limits of a scope key apart: how long a start counts, and of what.
type Span struct {
	Kind     Kind
	Length   int64  // us, of the window or the lease; about as long as a period is
	Calendar string // of a quota or of hours, as package calendar writes it; else empty
}

// Window is the span of a sliding window.
func Window(length int64) Span { return Span{Kind: Sliding, Length: length} }

// Lease is the span of what runs at once.
func Lease(length int64) Span { return Span{Kind: Running, Length: length} }

// Periods is the span of a quota.
func Periods(of *calendar.Calendar) Span {
	return Span{Quota, of.Length().Microseconds(), of.String()}
}

// Open is the span of opening hours. Their length is that of a week.
func Open(of *calendar.Hours) Span {
	return Span{Hours, week, of.String()}
}

const week = 7 * 24 * 60 * 60 * 1_000_000 // us

// Slashes separate the parts of a limit, commas limits, and spaces the words of an answer.
var (
	separators   = strings.NewReplacer("/", ".", " ", "~", ",", "&")
	ofSeparators = strings.NewReplacer(".", "/", "~", " ", "&", ",")
)

// String is how the scripts write it: "w60000000", "z86400000000day@Europe.Paris",
// "h604800000000Mon-Fri~09:00-17:00~@Europe.Paris".
func (s Span) String() string {
	return string(s.Kind) + strconv.FormatInt(s.Length, 10) + separators.Replace(s.Calendar)
}

// ParseSpan reads what String writes.
func ParseSpan(text string) (Span, error) {
	wrong := fmt.Errorf("line: %q is no span", text)
	digits := strings.TrimLeft(text, "hrwz")
	rest := strings.TrimLeft(digits, "0123456789")
	length, err := strconv.ParseUint(digits[:len(digits)-len(rest)], 10, 53)
	if len(text) != len(digits)+1 || err != nil || length == 0 {
		return Span{}, wrong
	}
	s := Span{Kind: Kind(text[0]), Length: int64(length)}
	if rest == "" && s.Kind != Quota && s.Kind != Hours {
		return s, nil
	}
	of, err := EdgesOf(rest)
	if err != nil {
		return Span{}, wrong
	}
	var is Span
	switch of := of.(type) {
	case *calendar.Calendar:
		is = Periods(of)
	case *calendar.Hours:
		is = Open(of)
	}
	if is.Kind == s.Kind && is.Length == s.Length {
		return is, nil
	}
	return Span{}, wrong
}

// EdgesOf returns the calendar or the hours of the text that follows the length of a span.
func EdgesOf(text string) (calendar.Edges, error) {
	return calendar.EdgesOf(ofSeparators.Replace(text))
}

// Compare is the order of limits and of a scope key's ledgers: hours, leases, windows, quotas, short ones first.
func (s Span) Compare(other Span) int {
	if s.Kind != other.Kind || s.Length != other.Length {
		return cmp.Or(cmp.Compare(s.Kind, other.Kind), cmp.Compare(s.Length, other.Length))
	}
	return strings.Compare(s.String(), other.String())
}

// subWindows is for how many sub-windows of a precision a start counts: for the length after it,
// rounded up to whole ones, so that no window is judged too empty. With a precision of 1 it counts
// to the microsecond. A start in a period of a calendar counts in that period alone.
func (s Span) subWindows(precision int64) int64 {
	if s.Kind == Quota {
		return 1
	}
	if precision == 1 {
		return s.Length
	}
	return (s.Length+precision-1)/precision + 1
}

// n is how many sub-windows count together.
func (d *ledger) n() int64 { return d.subWindows(d.precision) }

// subWindow returns the sub-window of an instant of the ledger's time, startOf the first instant of a sub-window.
func (d *ledger) subWindow(at int64) int64 {
	if d.Kind == Quota {
		return d.periodOf(d.Calendar, at)
	}
	return at / d.precision
}

func (d *ledger) startOf(sub int64) int64 {
	if d.Kind == Quota {
		return d.edgeOf(d.Calendar, sub)
	}
	return sub * d.precision
}

// leaves is when a start at an instant leaves.
func (d *ledger) leaves(at int64) int64 { return d.startOf(d.subWindow(at) + d.n()) }
