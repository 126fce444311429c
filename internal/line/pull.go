package line

import (
	"cmp"
	"slices"
	"strings"
)

// parked stands behind the name of a scope key in the timer of the lanes that are parked beside it: lanes whose
// first job has no room only for its weight, while another one has the claim.
const parked = "!"

// parkedFor is after how long parked lanes are looked at again at the latest.
const parkedFor = 60_000_000

// mostWalked is how many parked lanes of a scope key one look comes by.
const mostWalked = 64

// forgetAfter is how long a job that did not come to its slot finds its place again.
const forgetAfter = 600_000_000

// toldAgain is how long it takes at least until a pull tells again of an overdue job, the
// longer the longer it is overdue; mostOverdue is how many a pull tells of again.
const (
	toldAgain   = 1_000_000
	mostOverdue = 50
)

// mostDropped bounds the work of one pull where a backlog was deleted.
const mostDropped = 2000

// steppedUnseen is how far the clock may step back without all being looked at.
const steppedUnseen = 1_000_000

// A flow makes way for a claim that is as near as this, for so long at a stretch.
const (
	nearClaim   = 10_000_000
	makesWayFor = 5_000_000
)

// looksOfAClaim is for how many looks one at a claim counts: it costs as much.
const looksOfAClaim = 8

// claimedFor is when a claim is looked at again that other scope keys put off.
const claimedFor = 5_000_000

// Told is a job that a pull books, finds overdue, or throws out.
type Told struct {
	ID   string
	Slot int64
	Lane string
}

// Pulled is what a pull did.
type Pulled struct {
	Booked, Overdue []Told
	Next            int64
}

// puller is one pull.
type puller struct {
	*Line
	bookings, looks int // left
	checks          int // whether it is to end
	drops           int // left: jobs that have left, of which a pull takes so many out
	brings          bool
	told            Pulled
}

// Pull books the first jobs of lanes whose time has come, as far as there is room within
// the lookahead, and finds bookings whose grace is over.
func (l *Line) Pull(now int64, settings Settings, bookings, looks int) Pulled {
	return l.pull(now, settings, bookings, looks, true)
}

// PullOnly is Pull for who cannot bring jobs that did not come: they are kept for who can.
func (l *Line) PullOnly(now int64, settings Settings, bookings, looks int) Pulled {
	return l.pull(now, settings, bookings, looks, false)
}

func (l *Line) pull(now int64, settings Settings, bookings, looks int, brings bool) Pulled {
	l.begin(now, settings)
	p := &puller{Line: l, bookings: bookings, looks: looks, drops: mostDropped, brings: brings}
	p.keepUp()
	again := l.overdues.until(now)
	due := l.timers.until(now)
	for _, name := range p.narrowFirst(due[:min(len(due), looks)]) {
		p.endIfTired()
		if p.bookings == 0 || p.looks <= 0 {
			break // the other timers are older now than those looked at: they are the first the next time
		}
		switch {
		case strings.HasPrefix(name, "="):
			if !p.planned(name[1:]) {
				p.late(name[1:])
			}
		case strings.HasPrefix(name, "+"):
			if p.claims[name[1:]] != nil {
				p.claimed(p.lanes[name[1:]])
			}
		case strings.HasSuffix(name, parked):
			p.unpark(strings.TrimSuffix(name, parked))
		default:
			p.look(name)
		}
	}
	if brings {
		p.tellAgain(again[:min(len(again), mostOverdue)])
	}
	p.forgetShares()
	l.end()
	p.told.Next = l.Next()
	return p.told
}

// keepUp has everything looked at that was to be looked at by a clock that stepped back.
func (p *puller) keepUp() {
	if p.pulled > p.now+steppedUnseen {
		for _, name := range p.timers.sorted() {
			if at, _ := p.timers.get(name); at > p.now {
				p.timers.set(name, p.now)
			}
		}
	}
	p.pulled = p.now
}

// tellAgain tells of jobs that were told of, or could not be, and have not come since.
func (p *puller) tellAgain(ids []string) {
	for _, id := range ids {
		known := p.jobs[id]
		forgotten, is := p.timers.get("=" + id)
		if known == nil || known.state != overdue || !is {
			p.overdues.delete(id)
			continue
		}
		p.told.Overdue = append(p.told.Overdue, Told{id, known.arrival, known.lane})
		p.overdues.set(id, p.now+max(toldAgain, p.now+forgetAfter-forgotten))
	}
}

// toAsk tells of a job that is to ask, and has it find its place again for a while.
func (p *puller) toAsk(told Told) {
	p.timers.set("="+told.ID, p.now+forgetAfter)
	p.overdues.set(told.ID, p.now)
	if p.brings {
		p.told.Overdue = append(p.told.Overdue, told)
		p.overdues.set(told.ID, p.now+toldAgain)
	}
}

// narrowFirst has claims and parked lanes looked at first, of what has become due at about
// the same time, then scope keys under which one flow stands: the lanes that have room there
// have their turn with the others under the scope keys that they share.
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

// planned tells of a job that was booked as a plan, for its slot that is still ahead or has
// just been.
func (p *puller) planned(id string) bool {
	known := p.jobs[id]
	if known == nil || known.state != booked || known.slot > p.now+p.settings.Lookahead ||
		known.slot+p.settings.Grace <= p.now {
		return false
	}
	p.told.Booked = append(p.told.Booked, Told{id, known.slot, known.lane})
	p.bookings--
	p.timers.set("="+id, known.slot+p.settings.Grace)
	return true
}

// late ends a booking whose grace is over. The job keeps its place for a while.
func (p *puller) late(id string) {
	known := p.jobs[id]
	if known == nil || known.state != booked {
		delete(p.jobs, id)
		p.timers.delete("=" + id)
		p.overdues.delete(id)
		return
	}
	p.unbook(id, known)
	known.state = overdue
	p.toAsk(Told{id, known.slot, known.lane})
	for _, name := range p.lane(known.lane).keys {
		p.hurry(name)
	}
}

// endIfTired has a pull end that a script has ended here.
func (p *puller) endIfTired() {
	if p.checks++; p.Ends > 0 && p.checks >= p.Ends {
		p.looks = 0
	}
}

// head is the lane whose turn it is in a queue. Jobs that have left are dropped, and lanes of
// which nothing is left.
func (p *puller) head(queue string) (*lane, float64) {
	p.endIfTired()
	for p.looks > 0 {
		q := p.queues[queue]
		if q == nil || q.tags.len() == 0 {
			return nil, 0
		}
		p.looks--
		p.Looks++
		flow, tag, _ := q.first()
		lane := p.lanes[p.first(queue, flow)]
		if !p.drop(lane) {
			return nil, 0
		}
		thrown := p.throwOut(lane)
		switch {
		case len(lane.jobs) == 0:
			p.leave(queue, lane)
		case !thrown:
			return lane, tag
		default:
			q.leads(lane, lane.jobs[0].arrival)
		}
	}
	return nil, 0
}

// nextParked is the next of some lanes that are parked beside a scope key; nil if there is none
// or, as it tells, if it could not be looked for.
func (p *puller) nextParked(name string, lanes *[]string) (found *lane, more bool) {
	p.endIfTired()
	for len(*lanes) > 0 {
		if p.looks <= 0 {
			return nil, true
		}
		p.looks--
		p.Looks++
		lane := p.lanes[(*lanes)[0]]
		*lanes = (*lanes)[1:]
		if !p.drop(lane) {
			return nil, true
		}
		thrown := p.throwOut(lane)
		switch {
		case len(lane.jobs) == 0:
			p.leaveAside(name, lane)
		case thrown:
			p.anew(lane, lane.jobs[0].arrival)
		default:
			return lane, false
		}
	}
	return nil, p.looks <= 0
}

// first is the lane of a flow whose turn it is in a queue.
func (l *Line) first(queue, flow string) (lane string) {
	q := l.queues[queue]
	return q.lanes[flow].head(q.classes[flow])
}

// throwOut takes the first job of a lane out that weighs more than a limit allows: it holds
// up those behind it, and is to ask again, to hear that. It is told of as overdue.
func (p *puller) throwOut(lane *lane) bool {
	if len(lane.jobs) == 0 || p.tooHeavy(lane, lane.jobs[0].costs) == nil {
		return false
	}
	first := lane.jobs[0]
	lane.jobs = lane.jobs[1:]
	p.drop(lane)
	p.jobs[first.id] = &record{state: overdue, costs: first.costs, arrival: first.arrival, lane: lane.name}
	p.toAsk(Told{first.id, p.now, lane.name})
	return true
}

// waits tells whether a job waits at this place of its lane.
func (l *Line) waits(lane *lane, at place) bool {
	known := l.jobs[at.id]
	return known != nil && known.state == waiting && known.arrival == at.arrival && known.lane == lane.name
}

// look books the first jobs that stand under a scope key until it has no room, and moves
// lanes under another scope key that has none for them.
func (p *puller) look(name string) {
	if q := p.queues[name]; q != nil {
		q.forgetFinished()
	}
	moved := int64(0) // units of jobs that had their turn here and wait for it elsewhere
	for p.bookings > 0 {
		lane, tag := p.head(name)
		if lane == nil {
			p.done(name)
			return
		}
		first := lane.jobs[0]
		cost := costOf(lane, first.costs, name)
		k, horizon := p.key(name), p.now+p.settings.Lookahead
		own := p.now
		if k.mode == Enforce {
			own, _, _ = k.earliest(p.now, p.now, cost)
		}
		if own > horizon && !p.heavy(k, cost) || moved > 0 && p.full(k, moved+cost) {
			p.timers.set(name, p.again(k))
			return
		}
		f := p.earliest(lane, first.costs, p.now, true, Enforce)
		if f.at > horizon {
			p.makeRoom(name, lane, f)
			continue
		}
		other := p.contended(lane, name)
		if other == "" {
			if until := p.makesWay(name, lane.flow, tag); until > p.now {
				p.timers.set(name, until)
				return
			}
			q := p.queues[name]
			q.virtual = max(q.virtual, tag)
			p.bookFirst(lane, f.at)
			if len(lane.jobs) > 0 {
				q.leads(lane, lane.jobs[0].arrival)
			} else {
				p.leave(name, lane)
			}
			continue
		}
		p.queues[name].let[lane.flow] = true
		p.move(name, other, lane, p.now)
		moved += cost
	}
	p.timers.set(name, p.now)
}

// makesWay is until when a flow is held back for the claim under a scope key: if the claim's
// place is near, and the flow is ahead of the claimant by more than the claimed job. It ends
// after a while, and then one of the flow's jobs has its turn.
func (p *puller) makesWay(name, flow string, tag float64) int64 {
	holder, is := p.claimers[name]
	if !is {
		return 0
	}
	other, c, q := p.lanes[holder], p.claims[holder], p.queues[name]
	work := float64(costOf(other, c.costs, name)) / p.share(other.flow)
	if other.flow == flow || c.at-p.now > nearClaim || tag <= q.startTag(other.flow)+work {
		return 0
	}
	if q.madeWay == 0 {
		q.madeWay = p.now
	}
	until := q.madeWay + makesWayFor
	if until <= p.now {
		q.madeWay = 0
	}
	return until
}

// done ends the look at a queue in which nobody stands any more, or for which there are no
// looks left.
func (p *puller) done(name string) {
	if !p.stands(name) {
		p.timers.delete(name)
	} else {
		p.timers.set(name, p.now)
	}
}

// heavy tells that a scope key has no room for a job only for its weight.
func (p *puller) heavy(k *key, cost int64) bool {
	if cost == 1 {
		return false
	}
	one, _, _ := k.earliest(p.now, p.now, 1)
	return one <= p.now+p.settings.Lookahead
}

// full tells that a scope key has no room for so many units within the lookahead.
func (p *puller) full(k *key, units int64) bool {
	if k.mode != Enforce {
		return false
	}
	at, _, _ := k.earliest(p.now, p.now, min(units, k.fewest()))
	return at > p.now+p.settings.Lookahead
}

// again is when a scope key is to be looked at that has no room: when one unit has. If it
// has, but lanes that had their turn here are to have it, they are given a while.
func (p *puller) again(k *key) int64 {
	one, _, _ := k.earliest(p.now, p.now, 1)
	if one <= p.now+p.settings.Lookahead {
		return p.now + p.settings.Lookahead/4
	}
	return p.soon(max(one-p.settings.Lookahead, p.now+1), k.ends)
}

// makeRoom deals with a lane whose first job has no place within the lookahead, though it
// has its turn here: it moves under the scope key that has no room, or gets a claim.
func (p *puller) makeRoom(name string, lane *lane, f fit) {
	first := lane.jobs[0]
	blocked, _ := p.blocked(lane, first.costs, f)
	if blocked == name || len(p.lacking(lane, first.costs)) == 0 {
		p.claimOrPark(name, lane, blocked, f.at)
		return
	}
	p.move(name, blocked, lane, p.now)
}

// lacking are the scope keys of a lane that have no room for a job by themselves.
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

// claimOrPark claims a job's place under a scope key that lacks room for it or, if that has
// a claim already, parks its lane there. Either way the lane makes way for others.
func (p *puller) claimOrPark(queue string, lane *lane, name string, at int64) {
	p.looks -= looksOfAClaim
	p.queues[queue].aside[lane.flow] = float64(costOf(lane, lane.jobs[0].costs, queue)) / p.share(lane.flow)
	if _, is := p.claimers[name]; !is && at != Never {
		p.claim(lane, []string{name}, at)
	} else {
		tag := 0.0
		if q := p.queues[name]; q != nil {
			tag = q.startTag(lane.flow)
		}
		if p.asides[name] == nil {
			p.asides[name] = &aside{}
		}
		p.asides[name].lanes.set(lane.name, tag)
		p.due(name+parked, p.parkedUntil(lane, name))
	}
	p.leave(queue, lane)
}

// parkedUntil is when a lane is looked at again that is parked beside a scope key: when that
// has room for its first job. If it has, but others do not at the same time, room in any of
// them may bring the job forward: it is looked at again soon.
func (p *puller) parkedUntil(lane *lane, name string) int64 {
	at, most := p.roomUnder(lane, name), p.now+parkedFor
	if at <= p.now+p.settings.Lookahead {
		at, most = p.earliest(lane, lane.jobs[0].costs, p.now, true, Enforce).at, p.now+claimedFor
	}
	return max(min(at-p.settings.Lookahead, most, p.ends(lane)), p.now+1)
}

// roomUnder is when one scope key has room for the first job of a lane by itself.
func (p *puller) roomUnder(lane *lane, name string) int64 {
	k := p.key(name)
	if k.mode != Enforce {
		return p.now
	}
	at, _, _ := k.earliest(p.now, p.now, costOf(lane, lane.jobs[0].costs, name))
	return at
}

// claim books units for a lane that stands in no queue while it has them. If none of the
// scope keys puts the job off as far by itself, room in another one may bring it forward:
// it is looked at again soon.
func (p *puller) claim(lane *lane, names []string, at int64) {
	first, last := lane.jobs[0], int64(0)
	p.claims[lane.name] = &claim{at: at, costs: first.costs, names: names}
	for _, name := range names {
		cost := costOf(lane, first.costs, name)
		own, _, _ := p.key(name).earliest(p.now, p.now, cost)
		last = max(last, own)
		p.key(name).book(at, cost)
		p.claimers[name] = lane.name
	}
	look := at - p.settings.Lookahead
	if last < at {
		look = min(look, p.now+claimedFor)
	}
	p.timers.set("+"+lane.name, p.soon(max(look, p.now+1), p.ends(lane)))
}

// release gives back what a lane claims.
func (p *puller) release(lane *lane) *claim {
	c := p.claims[lane.name]
	for _, name := range c.names {
		p.key(name).book(c.at, -costOf(lane, c.costs, name))
		p.hurry(name)
		delete(p.claimers, name)
		p.tidy(name)
	}
	delete(p.claims, lane.name)
	p.timers.delete("+" + lane.name)
	return c
}

// claimed books the job that has a claim when its place has come into the lookahead. If
// there is no room for it after all, it claims what it lacks as well.
func (p *puller) claimed(lane *lane) {
	p.looks -= looksOfAClaim
	p.Looks++
	c := p.release(lane)
	if !p.drop(lane) {
		p.stand(c.names[0], lane, p.now)
		return
	}
	thrown := p.throwOut(lane)
	if len(lane.jobs) == 0 {
		return
	}
	if thrown {
		p.stand(c.names[0], lane, p.now)
		return
	}
	first := lane.jobs[0]
	f := p.earliest(lane, first.costs, p.now, true, Enforce)
	if f.at <= p.now+p.settings.Lookahead {
		for _, name := range c.names {
			if q := p.queues[name]; q != nil {
				q.virtual = max(q.virtual, q.startTag(lane.flow))
			}
		}
		p.bookFirst(lane, f.at)
		if len(lane.jobs) > 0 {
			p.stand(c.names[0], lane, p.now)
		}
		return
	}
	if f.at != Never {
		if names, at := p.needed(lane, c.names, f.at); len(names) > 0 {
			p.claim(lane, names, at)
			return
		}
	}
	name, look := p.blocked(lane, first.costs, f)
	p.stand(name, lane, look)
}

// needed are the scope keys that a job claims whose place is at this instant: what it
// lacks, and what it had, unless the place is so far ahead that what is claimed there would
// only keep others from claiming. Of two lanes that lack what the other one has, the one
// whose first job came later gives way (wound-wait: Rosenkrantz, Stearns and Lewis, 1978),
// so that they do not wait for each other for ever. It returns the place anew, since that
// may bring it forward.
func (p *puller) needed(lane *lane, had []string, at int64) (names []string, place int64) {
	costs := lane.jobs[0].costs
	lacking := p.lacking(lane, costs)
	for _, name := range lane.keys {
		k := p.key(name)
		kept := k.mode == Enforce && slices.Contains(had, name) && at-p.now <= 2*k.longest()
		if !kept && !slices.Contains(lacking, name) {
			continue
		}
		holder, taken := p.claimers[name]
		if taken && !lane.before(p.lanes[holder]) {
			continue
		}
		if taken {
			other := p.lanes[holder]
			p.stand(name, other, p.now)
			p.release(other)
		}
		names = append(names, name)
	}
	return names, p.earliest(lane, costs, p.now, true, Enforce).at
}

// before tells whether the first job of a lane came before that of another one.
func (l *lane) before(other *lane) bool {
	a, b := l.jobs[0].arrival, other.jobs[0].arrival
	return a < b || a == b && l.name < other.name
}

// unpark walks along the lanes that are parked beside a scope key. A walk that has not come by
// all of them goes on with the next pull, but for one from the front for the claim.
func (p *puller) unpark(name string) {
	from, before := 0, p.now+parkedFor
	_, taken := p.claimers[name]
	if a := p.asides[name]; a != nil && a.walking && taken {
		from, before = a.walked, a.look
	}
	look, left := p.walk(name, from, before, !taken)
	switch a := p.asides[name]; {
	case a == nil:
		p.timers.delete(name + parked)
	case left >= 0:
		a.walking, a.walked, a.look = true, left, look
		p.timers.set(name+parked, p.now)
	default:
		a.walking, a.walked, a.look = false, 0, 0
		p.timers.set(name+parked, max(look, p.now))
	}
}

// walk has parked lanes from a rank on have their turn again whose first jobs have room; and the
// first one, which may have the claim, if nobody has it: free. look is when those before are
// looked at again. It returns when to look again, and where the walk goes on then, -1
// if it has come to its end.
func (p *puller) walk(name string, rank int, look int64, free bool) (next int64, left int) {
	var lanes []string
	if a := p.asides[name]; a != nil {
		lanes = a.lanes.sorted()
		lanes = lanes[min(rank, len(lanes)):]
	}
	k, moved, least := p.key(name), int64(0), Never
	for range mostWalked {
		lane, more := p.nextParked(name, &lanes)
		if more {
			return look, rank
		}
		if lane == nil {
			return look, -1
		}
		cost := costOf(lane, lane.jobs[0].costs, name)
		room, own := p.hasRoom(lane, name, cost, least)
		switch {
		case room && moved > 0 && p.full(k, moved+cost):
			return p.now + p.settings.Lookahead/4, -1
		case room:
			p.unparkLane(name, lane, lane.jobs[0].arrival)
			moved += cost
		case free && cost < least && own != Never:
			p.unparkLane(name, lane, lane.jobs[0].arrival)
			return p.now + p.settings.Lookahead, -1
		default:
			if cost < least {
				look = min(look, p.parkedUntil(lane, name))
				if own > p.now+p.settings.Lookahead {
					least = cost
				}
			}
			rank++
		}
	}
	return look, rank
}

// hasRoom tells whether the first job of a parked lane has room, or has to wait under another
// scope key that has none; and when the one beside which it is parked has room for it. What is
// not lighter than a job without room there, least, has none either.
func (p *puller) hasRoom(lane *lane, name string, cost, least int64) (room bool, own int64) {
	if cost >= least {
		return false, Never
	}
	horizon, costs := p.now+p.settings.Lookahead, lane.jobs[0].costs
	if own = p.roomUnder(lane, name); own > horizon {
		return false, own
	}
	return p.earliest(lane, costs, p.now, true, Enforce).at <= horizon || len(p.lacking(lane, costs)) > 0, own
}

// bookFirst books the first job of a lane and takes it out.
func (p *puller) bookFirst(lane *lane, at int64) {
	first := lane.jobs[0]
	lane.jobs = lane.jobs[1:]
	p.promise(first.id, lane, first.costs, at, first.arrival)
	p.told.Booked = append(p.told.Booked, Told{first.id, at, lane.name})
	p.bookings--
	p.charge(lane, first.costs, 1)
	p.drop(lane)
}

// drop takes the jobs out that have left, as far as the first that has not, and ends the lane
// if none is left. It returns false if there are more than one pull may drop.
func (p *puller) drop(lane *lane) bool {
	for len(lane.jobs) > 0 && !p.waits(lane, lane.jobs[0]) {
		if p.drops == 0 {
			p.looks = 0
			return false
		}
		p.drops--
		lane.jobs = lane.jobs[1:]
	}
	if len(lane.jobs) == 0 {
		p.endLane(lane)
	}
	return true
}

// endLane forgets a lane of which no job is left, and that its flow has had its turn under the
// lane's scope keys.
func (p *puller) endLane(lane *lane) {
	delete(p.lanes, lane.name)
	for _, name := range lane.keys {
		if q := p.queues[name]; q != nil {
			delete(q.let, lane.flow)
		}
	}
}

// move has a lane wait in another queue.
func (p *puller) move(from, to string, lane *lane, look int64) {
	p.stand(to, lane, look)
	p.leave(from, lane)
}
