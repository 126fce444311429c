package line

import (
	"cmp"
	"fmt"
	"strconv"
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
)

// Renewed reports whether a grant notes its places, which its job renews and gives back. A full ledger may
// have room at any time.
func (k Kind) Renewed() bool { return k == Running }

// Settled reports whether a settlement corrects the charge of a start, and a report of the upstream adds debts.
func (k Kind) Settled() bool { return k == Sliding }

// logged reports whether Lua moves the oldest of many entries into a log. Such a ledger may become coarser.
func (k Kind) logged() bool { return k == Sliding }

// Span is what tells the limits of a scope key apart: how long a start counts, and of what.
type Span struct {
	Kind   Kind
	Length int64 // us, of the window or the lease
}

// Window is the span of a sliding window.
func Window(length int64) Span { return Span{Sliding, length} }

// Lease is the span of what runs at once.
func Lease(length int64) Span { return Span{Running, length} }

// String is how the scripts write it: "w60000000".
func (s Span) String() string { return string(s.Kind) + strconv.FormatInt(s.Length, 10) }

// ParseSpan reads what String writes.
func ParseSpan(text string) (Span, error) {
	if len(text) < 2 || text[0] != byte(Sliding) && text[0] != byte(Running) {
		return Span{}, fmt.Errorf("line: %q is no span", text)
	}
	length, err := strconv.ParseUint(text[1:], 10, 53)
	if err != nil || length == 0 {
		return Span{}, fmt.Errorf("line: %q is no span", text)
	}
	return Span{Kind(text[0]), int64(length)}, nil
}

// Compare is the order of a scope key's ledgers: leases before windows, short ones first.
func (s Span) Compare(other Span) int {
	return cmp.Or(cmp.Compare(s.Kind, other.Kind), cmp.Compare(s.Length, other.Length))
}

// subWindows is for how many sub-windows of a precision a start counts: for the length after it,
// rounded up to whole ones, so that no window is judged too empty. With a precision of 1 it counts
// to the microsecond.
func (s Span) subWindows(precision int64) int64 {
	if precision == 1 {
		return s.Length
	}
	return (s.Length+precision-1)/precision + 1
}

// n is how many sub-windows count together.
func (d *ledger) n() int64 { return d.subWindows(d.precision) }

// sub is the sub-window of an instant of the ledger's time, startOf the first instant of a
// sub-window.
func (d *ledger) subWindow(at int64) int64 { return at / d.precision }

func (d *ledger) startOf(sub int64) int64 { return sub * d.precision }
