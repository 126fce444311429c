package wire

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// Usage asks for the state of scope keys.
type Usage struct {
	Entries  bool // also the entries of their ledgers
	Count    bool // also the units that started between From and To ago
	From, To int64
	Names    []string
}

// The first arguments of usage.lua.
const (
	usageEntries = "e"
	usageCount   = "c "
)

// Arguments returns the arguments of usage.lua.
func (u Usage) Arguments() []string {
	also := ""
	switch {
	case u.Entries:
		also = usageEntries
	case u.Count:
		also = usageCount + integers(' ', u.From, u.To)
	}
	return append([]string{also}, u.Names...)
}

// ReadUsage reads the arguments of usage.lua.
func ReadUsage(args []string) (Usage, error) {
	v := &Values{rest: args}
	also := v.Text()
	u := Usage{Entries: also == usageEntries, Names: v.rest}
	if interval, is := strings.CutPrefix(also, usageCount); is {
		of := words(interval)
		u.Count, u.From, u.To = true, of.Natural(), of.Natural()
		v.wrong = of.Err() != nil
	} else {
		v.wrong = v.wrong || !u.Entries && also != ""
	}
	v.rest = nil
	return u, v.Err()
}

// Used is the answer of usage.lua for the first names, at least one.
type Used struct {
	Now  int64
	Keys []KeyUsed
}

// KeyUsed is the state of one scope key. Counted is -1 if no window goes back that far.
type KeyUsed struct {
	line.KeyState
	Counted []int64 // one element if it was asked for
	Ledgers []line.LedgerSnapshot
}

// Reply returns the reply of usage.lua.
func (u Used) Reply() []any {
	reply := []any{integer(u.Now)}
	for _, k := range u.Keys {
		lines := []string{StateText(k.KeyState)}
		for _, units := range k.Counted {
			lines = append(lines, countedMark+" "+integer(units))
		}
		for _, d := range k.Ledgers {
			lines = append(lines, fmt.Sprintf("%s %s %d %d %d %s %s", ledgerMark, d.Span, d.Precision, d.N, d.Shift,
				entriesText(d.Spent), entriesText(d.Booked)))
		}
		reply = append(reply, strings.Join(lines, "\n"))
	}
	return reply
}

// The prefixes of a count and of a ledger.
const (
	countedMark = "#"
	ledgerMark  = "="
)

// noEntries stands for an empty list of entries.
const noEntries = "-"

// digits is the length of each of an entry's two numbers, the sub-window and its units.
const digits = 16

func entriesText(entries []line.Entry) string {
	var all strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&all, "%0*d%0*d", digits, e.At, digits, e.Units)
	}
	return cmp.Or(all.String(), noEntries)
}

// StateText writes the state of a scope key, without counts and ledgers.
func StateText(k line.KeyState) string {
	text := fmt.Sprintf("%d %d %c %c %d %d %d %d %d", k.Paused, k.Part, k.Mode, k.Origin, k.Ends, k.Flows, k.Timer,
		k.Length.Jobs, k.Length.Units)
	for _, u := range k.Limits {
		text += fmt.Sprintf("\n%s %d %d %d %d %d", u.Limit, u.Used, u.Booked, u.Free, u.Anew, u.Units)
	}
	return text
}

// ReadUsed reads the reply of usage.lua.
func ReadUsed(reply any) (Used, error) {
	v := Array(reply)
	u := Used{Now: v.Natural()}
	for v.More() {
		k, err := readKeyUsed(v.Text())
		v.wrong = v.wrong || err != nil
		u.Keys = append(u.Keys, k)
	}
	return u, v.Err()
}

func readKeyUsed(text string) (k KeyUsed, err error) {
	lines := strings.Split(text, "\n")
	head := words(lines[0])
	k.Paused, k.Part, k.Mode, k.Origin = head.Natural(), head.Natural(), line.Mode(head.letter()), head.letter()
	k.Ends, k.Flows, k.Timer = head.Natural(), head.Natural(), head.Natural()
	k.Length = line.Length{Jobs: head.Natural(), Units: head.Natural()}
	err = head.Err()
	for _, text := range lines[1:] {
		v := words(text)
		switch v.rest[0] {
		case ledgerMark:
			v.Text()
			k.Ledgers = append(k.Ledgers, v.ledger())
		case countedMark:
			v.Text()
			k.Counted = append(k.Counted, v.Integer())
		default:
			k.Limits = append(k.Limits, line.Usage{Limit: v.limit(), Used: v.Natural(), Booked: v.Natural(),
				Free: v.Natural(), Anew: v.Natural(), Units: v.Integer()})
		}
		err = cmp.Or(err, v.Err())
	}
	return k, err
}

func (v *Values) ledger() (d line.LedgerSnapshot) {
	span, err := line.ParseSpan(v.Text())
	v.wrong = v.wrong || err != nil
	d.Span, d.Precision, d.N, d.Shift = span, v.Natural(), v.Natural(), v.Integer()
	d.Spent, d.Booked = v.entries(), v.entries()
	return d
}

// entries reads the entries of a ledger. A settlement may have left an entry of 0 units.
func (v *Values) entries() (list []line.Entry) {
	text := v.Text()
	if text == noEntries {
		return nil
	}
	v.wrong = v.wrong || text == "" || len(text)%(2*digits) != 0
	for ; len(text) >= 2*digits; text = text[2*digits:] {
		parts := Values{rest: []string{text[:digits], text[digits : 2*digits]}}
		e := line.Entry{At: parts.Natural(), Units: parts.Natural()}
		if v.wrong = v.wrong || parts.wrong; e.Units > 0 {
			list = append(list, e)
		}
	}
	return list
}
