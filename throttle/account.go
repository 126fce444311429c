package throttle

import (
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// account is what usage says of one scope key.
type account struct {
	Usage
	counts  []int64       // units in an interval, if it was asked for; -1: no window goes back so far
	windows []line.Window // what is in Redis, if it was asked for
}

// accounts reads the answer of usage.
func (t *Throttle) accounts(reply any, names []string) ([]account, error) {
	v := arrayOf("usage", reply)
	now := v.instant()
	accounts := make([]account, len(names))
	for i, name := range names {
		accounts[i] = t.account(now, name, v)
	}
	return accounts, v.end()
}

func (t *Throttle) account(now time.Time, name string, v *values) account {
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
			a.windows = append(a.windows, line.Window{Window: l.integer(), Precision: l.natural(), N: l.natural(), Shift: l.integer()})
		case kind == "#":
			l.text()
			a.counts = append(a.counts, l.integer())
		case strings.Contains(kind, "/"):
			a.Limits = append(a.Limits, t.limitUsage(a.Scope, now, l))
		case len(a.windows) > 0:
			l.entry(&a.windows[len(a.windows)-1])
		default:
			v.wrong = true
		}
		v.wrong = v.wrong || l.end() != nil
	}
	return a
}

// entry reads a sub-window with what is spent and what is booked in it.
func (v *values) entry(of *line.Window) {
	at, spent, booked := v.natural(), v.natural(), v.natural()
	if spent > 0 {
		of.Spent = append(of.Spent, line.Entry{At: at, Units: spent})
	}
	if booked > 0 {
		of.Booked = append(of.Booked, line.Entry{At: at, Units: booked})
	}
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
	a.Waiting, a.Next = l.natural(), l.instant()
	a.Mode = Mode(max(mode, 0))
	v.wrong = v.wrong || mode < 0 || len(letter) != 1 || l.end() != nil
}

func (t *Throttle) limitUsage(scope string, now time.Time, l *values) LimitUsage {
	u := LimitUsage{Limit: l.limit(t, scope), Used: l.natural(), Booked: l.natural()}
	if free := l.integer(); free == -1 {
		u.Free = now
	} else {
		u.Free = instant(free)
	}
	return u
}
