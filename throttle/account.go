package throttle

import (
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// account is what usage says of one scope key.
type account struct {
	Usage
	counts  []int64               // units in an interval, if it was asked for; -1: no window goes back so far
	ledgers []line.LedgerSnapshot // what is in Redis, if it was asked for
}

// accounts reads the answer of usage: of the first names, one at least.
func (t *setup) accounts(reply any, names []string) ([]account, error) {
	v := arrayOf("usage", reply)
	now := v.instant()
	var accounts []account
	for _, name := range names {
		if !v.more() && len(accounts) > 0 {
			break
		}
		accounts = append(accounts, t.account(now, name, v))
	}
	return accounts, v.end()
}

func (t *setup) account(now time.Time, name string, v *values) account {
	lines := strings.Split(v.text(), "\n")
	var a account
	a.Now = now
	a.Scope, a.Key, _ = splitName(name)
	a.summary(v, lines[0])
	for _, text := range lines[1:] {
		l := lineOf(v.script, text)
		switch kind, _, _ := strings.Cut(text, " "); {
		case kind == "=":
			l.text()
			a.ledgers = append(a.ledgers, line.LedgerSnapshot{
				Span: l.span(), Precision: l.natural(), N: l.natural(), Shift: l.integer(), Spent: l.entries(),
				Booked: l.entries(),
			})
		case kind == "#":
			l.text()
			a.counts = append(a.counts, l.integer())
		case strings.Contains(kind, "/"):
			a.Limits = append(a.Limits, t.limitUsage(a.Scope, now, l))
		default:
			v.wrong = true
		}
		v.wrong = v.wrong || l.end() != nil
	}
	return a
}

// digitsOf is the length of each of an entry's two numbers, the sub-window and its units.
const digitsOf = 16

// entries reads entries as Redis has them; - for none.
func (v *values) entries() (list []line.Entry) {
	text := v.text()
	if text == "-" {
		return nil
	}
	v.wrong = v.wrong || text == "" || len(text)%(2*digitsOf) != 0
	for ; len(text) >= 2*digitsOf; text = text[2*digitsOf:] {
		parts := values{rest: []string{text[:digitsOf], text[digitsOf : 2*digitsOf]}}
		e := line.Entry{At: parts.natural(), Units: parts.natural()}
		if v.wrong = v.wrong || parts.wrong; e.Units > 0 {
			list = append(list, e)
		}
	}
	return list
}

// summary reads the line that tells of no limit.
func (a *account) summary(v *values, line string) {
	l := lineOf(v.script, line)
	a.Paused, a.Served = l.instant(), l.part()
	letter, origin := l.text(), l.text()
	mode := strings.Index(modeLetters, letter)
	switch origin {
	case setAll:
		a.SetFor = "scope"
	case setKey:
		a.SetFor = "key"
	case configured:
	default:
		v.wrong = true
	}
	a.Ends, a.Waiting, a.Next = l.instant(), l.natural(), l.instant()
	a.Mode = Mode(max(mode, 0))
	v.wrong = v.wrong || mode < 0 || len(letter) != 1 || l.end() != nil
}

func (t *setup) limitUsage(scope string, now time.Time, l *values) LimitUsage {
	u := LimitUsage{Limit: l.limit(t, scope), Used: l.natural(), Booked: l.natural()}
	if free := l.integer(); free == -1 {
		u.Free = now
	} else {
		u.Free = instant(free)
	}
	return u
}
