package line

import (
	"cmp"
	"slices"
)

// mostOverdue is how many overdue jobs a pull reports again.
const mostOverdue = 50

// steppedUnseen is how far the clock may step back before a pull looks at every timer.
const steppedUnseen = 1_000_000

// Pull books the first jobs of due lanes, as far as there is room within the lookahead, and finds bookings whose grace
// is over.
func (l *Line) Pull(now int64, settings Settings, bookings, looks int) Pulled {
	return l.pull(now, settings, bookings, looks, true)
}

// PullOnly is Pull for callers that cannot deliver overdue jobs again; these jobs stay for a caller that can.
func (l *Line) PullOnly(now int64, settings Settings, bookings, looks int) Pulled {
	return l.pull(now, settings, bookings, looks, false)
}

func (l *Line) pull(now int64, settings Settings, bookings, looks int, delivers bool) Pulled {
	l.begin(now, settings)
	p := &puller{Line: l, bookings: bookings, looks: looks, drops: mostDropped, delivers: delivers}
	var again []string
	if delivers {
		again = l.overdues.until(now)
	}
	p.keepUp()
	due := l.timers.until(now)
	for _, name := range p.narrowFirst(due[:min(len(due), looks)]) {
		p.endIfTired()
		if p.bookings == 0 || p.looks <= 0 {
			break // the other timers are older now than those looked at: they are the first the next time
		}
		p.attempt(name)
	}
	for _, id := range again[:min(len(again), mostOverdue)] {
		p.reportAgain(id)
	}
	if len(due)+len(again) > 0 {
		p.forgetShares()
	}
	l.end()
	p.told.Next = l.Next()
	return p.told
}

// keepUp makes every timer due that was set by a clock that has stepped back. An overdue job is only reported again.
func (p *puller) keepUp() {
	if p.pulled > p.now+steppedUnseen {
		for _, name := range p.timers.sorted() {
			at, _ := p.timers.get(name)
			told, isOverdue := p.overdues.get(name[1:])
			switch {
			case isOverdue && name[0] == '=':
				p.timers.set(name, min(at, p.now+forgetAfter))
				p.overdues.set(name[1:], min(told, p.now))
			case at > p.now:
				p.timers.set(name, p.now)
			}
		}
	}
	p.pulled = p.now
}

// narrowFirst orders timers that are due at about the same time: claims come first, then scope keys under which one
// flow stands. A lane that has room there then takes its turn with other lanes under the scope keys that they share.
func (p *puller) narrowFirst(due []string) []string {
	order := make(map[string][2]int64, len(due))
	for _, name := range due {
		at, _ := p.timers.get(name)
		wide := int64(0)
		if q := p.queues[name]; q != nil {
			wide = int64(min(2, q.tags.len()))
		}
		order[name] = [2]int64{at / max(1, p.settings.Lookahead/4), wide}
	}
	slices.SortStableFunc(due, func(a, b string) int {
		return cmp.Or(cmp.Compare(order[a][0], order[b][0]), cmp.Compare(order[a][1], order[b][1]))
	})
	return due
}
