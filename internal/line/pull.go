package line

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// againAfter is the longest time between two looks at lanes without room.
const againAfter = 60_000_000

// mostWalked is how many lanes without room one look passes.
const mostWalked = 64

// forgetAfter is how long a job that did not come to its slot keeps its position.
const forgetAfter = 600_000_000

// toldAgain is the shortest time between two reports of an overdue job; it grows with how long the job is overdue.
// mostOverdue is how many jobs a pull reports again.
const (
	toldAgain   = 1_000_000
	mostOverdue = 50
)

// mostDropped bounds the work of one pull where a backlog was deleted.
const mostDropped = 2000

// steppedUnseen is how far the clock may step back before a pull looks at every timer.
const steppedUnseen = 1_000_000

// looksOfAClaim is how many looks one look at a claim counts for: it costs as much.
const looksOfAClaim = 8

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

// Pull books the first jobs of due lanes, as far as there is room within the lookahead, and finds bookings whose grace
// is over.
func (l *Line) Pull(now int64, settings Settings, bookings, looks int) Pulled {
	return l.pull(now, settings, bookings, looks, true)
}

// PullOnly is Pull for callers that cannot deliver overdue jobs again; these jobs stay for a caller that can.
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
			p.reclaim(name[1:])
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

// keepUp makes every timer due that was set by a clock that has stepped back.
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

// tellAgain reports overdue jobs again that have not come since the last report, or that no pull could report.
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

// toAsk reports a job that should ask again, and keeps its position for a while.
func (p *puller) toAsk(told Told) {
	p.timers.set("="+told.ID, p.now+forgetAfter)
	p.overdues.set(told.ID, p.now)
	if p.brings {
		p.told.Overdue = append(p.told.Overdue, told)
		p.overdues.set(told.ID, p.now+toldAgain)
	}
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

// planned reports a job that was booked as a plan, if its slot is still ahead or has just passed.
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

// late ends a booking whose grace is over. The job keeps its position for a while.
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

// endIfTired ends a pull at the check at which the script ended its own.
func (p *puller) endIfTired() {
	if p.checks++; p.Ends > 0 && p.checks >= p.Ends {
		p.looks = 0
	}
}

// nextLane returns the lane that a walk along a queue has reached. It drops jobs that have left, and lanes without
// jobs. If it returns no lane, the walk is at its end or, where ended is false, no looks are left.
func (p *puller) nextLane(queue string) (at *lane, tag float64, ended bool) {
	p.endIfTired()
	for p.looks > 0 {
		q := p.queues[queue]
		if q == nil {
			return nil, 0, true
		}
		name, tag := q.walked()
		if name == "" {
			return nil, 0, true
		}
		p.looks--
		p.Looks++
		lane := p.lanes[name]
		if !p.drop(lane) {
			return nil, 0, false
		}
		thrown := p.throwOut(lane)
		switch {
		case len(lane.jobs) == 0:
			p.leave(queue, lane)
		case !thrown:
			return lane, tag, false
		default:
			q.leads(lane, lane.jobs[0].arrival)
		}
	}
	return nil, 0, false
}

// first returns the lane of a flow whose turn it is in a queue.
func (l *Line) first(queue, flow string) (lane string) {
	q := l.queues[queue]
	return q.lanes[flow].head(q.classes[flow])
}

// throwOut removes the first job of a lane if the job weighs more than a limit allows, since it holds up the jobs
// behind it. The pull reports the job as overdue: the job asks again, and the answer says that it never fits.
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

// waits reports whether a job waits at this entry of its lane.
func (l *Line) waits(lane *lane, at place) bool {
	known := l.jobs[at.id]
	return known != nil && known.state == waiting && known.arrival == at.arrival && known.lane == lane.name
}

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
		if own > horizon && !p.heavy(k, cost) || moved > 0 && p.full(k, moved+cost) {
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

// claimsUnder reports whether a booking for an instant is the claim of a scope key: of the scope key where the lane
// stands, and of any other where the booking is so near that it keeps other jobs waiting.
func (p *puller) claimsUnder(k *key, queue string, at int64) bool {
	return k.mode == Enforce && (k.name == queue || at-p.now <= 2*k.longest())
}

// claimed returns when the first claim that keeps a lane from claiming a start comes into the lookahead; 0 if none
// does. The bookings beyond the lookahead are claims; beside other claims a job may take the units that they leave of
// half of a limit. Under a running limit a claim keeps places empty, since nobody knows when places come back: the next
// claim waits until the slot of the last.
func (p *puller) claimed(lane *lane, queue string, at int64) (frees int64) {
	for i, name := range lane.keys {
		k := p.key(name)
		if !p.claimsUnder(k, queue, at) {
			continue
		}
		for j := range k.limits {
			limit := &k.limits[j]
			if limit.Units <= 0 {
				continue
			}
			if limit.Kind.Renewed() {
				if c := p.claims[name]; c.at > k.horizon {
					frees = max(frees, c.at)
				}
				continue
			}
			d := k.ledger(limit.Span)
			first, sum := p.beyond(k, d)
			if sum > 0 && 2*(sum+lane.jobs[0].costs[i]) > k.served(limit) {
				frees = max(frees, d.startOf(first)-k.goesOn)
			}
		}
	}
	return frees
}

// beyond returns the first sub-window beyond the lookahead with claimed units, and the sum of all claimed units. A
// forecast takes a booked job to start at its slot.
func (p *puller) beyond(k *key, d *ledger) (first, sum int64) {
	claims := d.booked
	if p.playing {
		claims = d.spent
	}
	for _, e := range claims {
		if e.at <= d.sub(k.time(k.horizon)) {
			continue
		}
		if sum == 0 {
			first = e.at
		}
		sum += e.units
	}
	return first, sum
}

// claim books the first job of a lane although its slot is beyond the lookahead.
func (p *puller) claim(name string, lane *lane, at int64) {
	first := lane.jobs[0]
	lane.jobs = lane.jobs[1:]
	p.promise(first.id, lane, first.costs, at, first.arrival)
	p.noteClaim(name, lane, first.id, at)
	if p.playing {
		p.told.Booked = append(p.told.Booked, Told{first.id, at, lane.name})
	}
	p.bookings--
	p.charge(lane, first.costs, 1)
	p.drop(lane)
}

func (p *puller) noteClaim(name string, lane *lane, id string, at int64) {
	for _, under := range lane.keys {
		if p.claimsUnder(p.key(under), name, at) {
			p.claims[under] = claim{at, id}
		}
	}
	if !p.playing {
		p.timers.delete("=" + id)
		p.timers.set("+"+id, p.soon(max(at-p.settings.Lookahead, p.now+1), p.ends(lane)))
	}
}

// reclaim looks for an earlier slot for a job that has a claim. A slot within the lookahead makes the claim an ordinary
// booking.
func (p *puller) reclaim(id string) {
	known := p.jobs[id]
	p.looks -= looksOfAClaim
	p.Looks++
	if known == nil || known.state != booked {
		p.timers.delete("+" + id)
		return
	}
	lane, name := p.lane(known.lane), ""
	for _, under := range lane.keys {
		if p.claims[under].id == id {
			name = under
		}
	}
	p.unbook(id, known)
	at := p.earliest(lane, known.costs, p.now, true, Enforce).at
	if at == Never {
		at = max(known.slot, p.now)
	}
	p.promise(id, lane, known.costs, at, known.arrival)
	if at > p.now+p.settings.Lookahead {
		p.noteClaim(name, lane, id, at)
	} else {
		p.told.Booked = append(p.told.Booked, Told{id, at, lane.name})
		p.bookings--
	}
	for _, under := range lane.keys {
		if p.stands(under) {
			p.due(under, p.now)
		}
	}
}

// heavy reports whether a scope key lacks room for a job only for its weight.
func (p *puller) heavy(k *key, cost int64) bool {
	if cost == 1 {
		return false
	}
	one, _, _ := k.earliest(p.now, p.now, 1)
	return one <= p.now+p.settings.Lookahead
}

// full reports whether a scope key has no room for so many units within the lookahead.
func (p *puller) full(k *key, units int64) bool {
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

// drop removes the jobs at the front that have left, and ends the lane if none is left. It returns false if there are
// more of them than one pull may drop.
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

// endLane forgets a lane without jobs, and that its flow has had its turn under the lane's scope keys.
func (p *puller) endLane(lane *lane) {
	delete(p.lanes, lane.name)
	for _, name := range lane.keys {
		if q := p.queues[name]; q != nil {
			delete(q.let, lane.flow)
		}
	}
}

// move puts a lane into another queue.
func (p *puller) move(from, to string, lane *lane, look int64) {
	p.stand(to, lane, look)
	p.leave(from, lane)
}
