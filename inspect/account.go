package inspect

import (
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// account is what the script usage answers for one scope key.
type account struct {
	Usage
	counted []line.Limit          // the limits as the scripts count them
	counts  []int64               // the units in each interval asked for; -1: no window goes back that far
	ledgers []line.LedgerSnapshot // the ledgers' entries, if asked for
}

// accounts reads the answer of the script usage. The answer covers the first name, and as many of the next names as the
// script had steps for.
func (t *Inspector) accounts(reply any, names []string) ([]account, error) {
	used, err := wire.ReadUsed(reply)
	if err != nil || len(used.Keys) == 0 || len(used.Keys) > len(names) {
		return nil, badReply("usage")
	}
	accounts := make([]account, len(used.Keys))
	for i, name := range names[:len(accounts)] {
		var is bool
		if accounts[i], is = t.account(wire.Instant(used.Now), name, used.Keys[i]); !is {
			return nil, badReply("usage")
		}
	}
	return accounts, nil
}

// account converts the state of a scope key; false if the state cannot be read.
func (t *Inspector) account(now time.Time, name string, k wire.KeyUsed) (a account, is bool) {
	a.Now, a.counts, a.ledgers = now, k.Counted, k.Ledgers
	a.Scope, a.Key, _ = wire.SplitScopeKey(name)
	mode := strings.IndexByte(wire.Modes, byte(k.Mode))
	if mode < 0 || k.Part > wire.Thousandths {
		return a, false
	}
	a.Mode, a.Paused, a.Served = throttle.Mode(mode), wire.Instant(k.Paused), float64(k.Part)/wire.Thousandths
	switch k.Origin {
	case wire.SetForScope:
		a.SetFor = "scope"
	case wire.SetForKey:
		a.SetFor = "key"
	case wire.Configured:
	default:
		return a, false
	}
	a.Ends, a.Waiting, a.Next = wire.Instant(k.Ends), k.Flows, wire.Instant(k.Timer)
	a.Line = throttle.Length(k.Length)
	a.MaxWaiting = t.in.MaxWaiting(a.Scope)
	for _, u := range k.Limits {
		l := LimitUsage{Limit: t.in.Entered(a.Scope, u.Limit), Units: u.Units, Used: u.Used, Booked: u.Booked,
			Free: wire.Instant(u.Free), Anew: wire.Instant(u.Anew)}
		if counts, known := t.in.Counts(a.Scope, l.Limit); known {
			l.Counts = counts
		}
		a.counted, a.Limits = append(a.counted, u.Limit), append(a.Limits, l)
	}
	return a, true
}
