package delivery

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// pause is a time in which nothing may start to a domain, since the server asked to
// wait. All instants are on Redis' clock.
type pause struct {
	domain string
	known  time.Time // it was in force then at the latest: Redis had answered
	until  time.Time
}

// pauses notes what a throttle pauses, beside another observer. It is safe for
// concurrent use.
type pauses struct {
	throttle.Observer
	now func() time.Time // on Redis' clock

	mu   sync.Mutex
	list []pause
}

// Paused implements throttle.Observer.
func (p *pauses) Paused(told throttle.Pause) {
	p.Observer.Paused(told)
	if told.Scope != campaign.ScopeDomain {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, pause{domain: told.Key, known: p.now(), until: told.Until})
}

// all returns the pauses so far, the earliest first. Those of one domain that
// overlap are one: mails that were under way when the first began made it longer.
func (p *pauses) all() []pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []pause
	for _, one := range slices.SortedFunc(slices.Values(p.list),
		func(a, b pause) int { return a.known.Compare(b.known) }) {
		i := slices.IndexFunc(all, func(a pause) bool { return a.domain == one.domain && !one.known.After(a.until) })
		if i < 0 {
			all = append(all, one)
		} else if one.until.After(all[i].until) {
			all[i].until = one.until
		}
	}
	return all
}

// pauseUse is how the workers heeded one pause.
type pauseUse struct {
	Domain  string  `json:"domain"`
	AtS     float64 `json:"at_s"`  // when it was in force
	ForS    float64 `json:"for_s"` // how long it lasted from then on
	Refused int     `json:"refused"`
	// UnderWay counts the refused attempts that were granted before the pause was in force,
	// with the attempt that began it. Disregarded counts the others: there must be none.
	UnderWay    int `json:"under_way"`
	Disregarded int `json:"disregarded"`
}

// heeded compares the attempts that the server refused, because the domain took nothing, with the pauses. Each attempt
// belongs to the first pause of its domain that ends after it. An attempt without a pause is disregarded, in an entry
// of its own.
func heeded(pauses []pause, pairs []arrival, began time.Time) []pauseUse {
	uses := make([]pauseUse, len(pauses))
	for i, p := range pauses {
		uses[i] = pauseUse{Domain: p.domain, AtS: p.known.Sub(began).Seconds(), ForS: p.until.Sub(p.known).Seconds()}
	}
	for _, pair := range pairs {
		if !pair.Entry.Closed {
			continue
		}
		domain := pair.Grant.mail.Domain
		i := slices.IndexFunc(pauses, func(p pause) bool { return p.domain == domain && pair.Entry.At.Before(p.until) })
		switch {
		case i < 0:
			uses = append(uses, pauseUse{Domain: domain, AtS: pair.Entry.At.Sub(began).Seconds(), Refused: 1, Disregarded: 1})
		case pair.Grant.decided.After(pauses[i].known):
			uses[i].Refused++
			uses[i].Disregarded++
		default:
			uses[i].Refused++
			uses[i].UnderWay++
		}
	}
	slices.SortStableFunc(uses, func(a, b pauseUse) int { return cmp.Compare(a.AtS, b.AtS) })
	return uses
}

// disregarded adds up the attempts that were granted in spite of a pause.
func disregarded(uses []pauseUse) int {
	n := 0
	for _, u := range uses {
		n += u.Disregarded
	}
	return n
}

func writePauses(w io.Writer, s Summary) {
	if len(s.Pauses) == 0 {
		return
	}
	table := report.NewTable(w)
	fmt.Fprintln(table, "domain that asked to wait\tfrom\tfor\trefused\tunder way\tgranted in spite of it")
	for _, p := range s.Pauses {
		fmt.Fprintf(table, "%s\t%5.2f s\t%.2f s\t%7d\t%9d\t%22d\n", p.Domain, p.AtS, p.ForS, p.Refused, p.UnderWay,
			p.Disregarded)
	}
	table.Flush()
	fmt.Fprintln(w)
}
