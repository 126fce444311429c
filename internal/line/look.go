package line

import (
	"math"
	"strings"
)

// againAfter is the longest time between two looks at lanes without room.
const againAfter = 60_000_000

// mostWalked is how many lanes without room one look passes.
const mostWalked = 64

// look walks along the lanes under a scope key in the order of their turns and books the first jobs that have room,
// until the scope key has none. A lane without room under another scope key moves there. A first job that lacks room
// only for its weight claims its start or, beside another claim, is passed.
func (p *puller) look(name string) {
	q := p.queues[name]
	if q == nil {
		p.endIfTired()
		p.timers.delete(name)
		return
	}
	q.forgetFinished()
	if !q.walking {
		q.walkIn, q.walkFlow, q.walkLane, q.again = "", 0, 0, p.now+againAfter
	}
	q.walking = false
	moved := int64(0) // units of jobs that had their turn here and wait for it elsewhere
	passed, least := 0, int64(math.MaxInt64)
	ended := false
	for p.bookings > 0 && passed < mostWalked {
		lane, tag, end := p.nextLane(name)
		if lane == nil {
			ended = end
			break
		}
		first := lane.jobs[0]
		cost := costOf(lane, first.costs, name)
		if cost >= least {
			p.pass(q, lane, tag, cost)
			passed++
			continue
		}
		k, horizon := p.key(name), p.now+p.settings.Lookahead
		own := p.now
		if k.mode == Enforce {
			own, _, _ = k.earliest(p.now, p.now, cost)
		}
		if own > horizon && !p.isHeavy(k, cost) || moved > 0 && p.isFull(k, moved+cost) {
			p.timers.set(name, p.again(k))
			return
		}
		f := p.earliest(lane, first.costs, p.now, true, Enforce)
		if f.at > horizon {
			if p.makeRoom(name, lane, tag, own, f) {
				passed++
				if own > horizon {
					least = cost
				}
			}
			continue
		}
		other := p.contended(lane, name)
		if other == "" {
			q.virtual = max(q.virtual, tag)
			p.told.Booked = append(p.told.Booked, Told{first.id, f.at, lane.name})
			p.bookFirst(lane, f.at)
			p.goOn(name, q, lane)
			continue
		}
		q.let[lane.flow] = true
		p.move(name, other, lane, p.now)
		moved += cost
	}
	p.endLook(name, ended)
}

// endLook sets when a scope key is looked at again. An unfinished walk goes on at once.
func (p *puller) endLook(name string, ended bool) {
	q := p.queues[name]
	switch {
	case !p.stands(name):
		p.timers.delete(name)
	case ended:
		p.timers.set(name, max(q.again, p.now))
	default:
		q.walking = true
		p.timers.set(name, p.now)
	}
}

// makeRoom deals with a first job that has no room: its lane moves under another scope key that has none for it,
// or the job claims its start or, beside other claims, is passed. It reports whether the job was passed.
func (p *puller) makeRoom(name string, lane *lane, tag float64, own int64, f fit) (passed bool) {
	q, first := p.queues[name], lane.jobs[0]
	blocked, _ := p.blocked(lane, first.costs, f)
	if blocked != name && len(p.lacking(lane, first.costs)) > 0 {
		p.move(name, blocked, lane, p.now)
		return false
	}
	p.looks -= looksOfAClaim - 1
	frees := p.claimed(lane, name, f.at)
	if frees == 0 && f.at != Never {
		q.virtual = max(q.virtual, tag)
		p.claim(name, lane, f.at)
		p.goOn(name, q, lane)
		return false
	}
	if own <= p.now+p.settings.Lookahead {
		own = f.at
	}
	if frees > 0 {
		own = min(own, frees)
	}
	q.again = min(q.again, own-p.settings.Lookahead, p.ends(lane))
	p.pass(q, lane, tag, costOf(lane, first.costs, name))
	return true
}

// goOn makes the next job of a lane its first.
func (p *puller) goOn(name string, q *queue, lane *lane) {
	if len(lane.jobs) > 0 {
		q.leads(lane, lane.jobs[0].arrival)
	} else {
		p.leave(name, lane)
	}
}

// pass moves a walk on behind a lane. The lane's flow saves up no turns: its tag is at most one job before the virtual
// time.
func (p *puller) pass(q *queue, lane *lane, tag float64, cost int64) {
	if least := q.virtual - float64(cost)/p.share(lane.flow); tag < least {
		q.tags.set(lane.flow, least)
	}
	q.walkLane++
}

// isHeavy reports whether a scope key lacks room for a job only for its weight.
func (p *puller) isHeavy(k *key, cost int64) bool {
	if cost == 1 {
		return false
	}
	one, _, _ := k.earliest(p.now, p.now, 1)
	return one <= p.now+p.settings.Lookahead
}

// isFull reports whether a scope key has no room for so many units within the lookahead.
func (p *puller) isFull(k *key, units int64) bool {
	if k.mode != Enforce {
		return false
	}
	at, _, _ := k.earliest(p.now, p.now, min(units, k.fewest()))
	return at > p.now+p.settings.Lookahead
}

// again returns when to look again at a scope key without room: when it has room for one unit. If it has that room, but
// lanes that had their turn here should take it, the scope key waits a while for them.
func (p *puller) again(k *key) int64 {
	one, _, _ := k.earliest(p.now, p.now, 1)
	if one <= p.now+p.settings.Lookahead {
		return p.now + p.settings.Lookahead/4
	}
	return p.soon(max(one-p.settings.Lookahead, p.now+1), k.ends)
}

// lacking returns the scope keys of a lane that have no room for a job by themselves.
func (p *puller) lacking(lane *lane, costs []int64) (names []string) {
	for i, name := range lane.keys {
		k := p.key(name)
		if k.mode != Enforce {
			continue
		}
		if own, _, _ := k.earliest(p.now, p.now, costs[i]); own > p.now+p.settings.Lookahead {
			names = append(names, name)
		}
	}
	return names
}

// attempt looks at one timer: of a booking, of a claim, or of a scope key.
func (p *puller) attempt(name string) {
	switch {
	case strings.HasPrefix(name, "="):
		p.lookAtBooking(name[1:])
	case strings.HasPrefix(name, "+"):
		p.reclaim(name[1:])
	default:
		p.look(name)
	}
}
