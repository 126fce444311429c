package line

import (
	"cmp"
	"maps"
	"slices"
)

// Clone returns an independent line in the same state. Clones of lines in the same state are the same to the last byte,
// however the lines came there.
func (l *Line) Clone() *Line {
	c := New()
	for name, k := range l.keys {
		c.keys[name] = k.clone()
	}
	for id, r := range l.jobs {
		own := *r
		c.jobs[id] = &own
	}
	for name, of := range l.lanes {
		own := *of
		own.jobs = append([]element(nil), of.jobs...)
		c.lanes[name] = &own
	}
	for name, q := range l.queues {
		c.queues[name] = q.clone()
	}
	maps.Copy(c.claims, l.claims)
	c.timers, c.overdues, c.all, c.pulled, c.playing = l.timers.clone(), l.overdues.clone(), l.all, l.pulled, l.playing
	c.shares = l.shares.clone()
	for lane, late := range l.late {
		own := late.clone()
		c.late[lane] = &own
	}
	maps.Copy(c.set, l.set)
	maps.Copy(c.settled, l.settled)
	for mark, r := range l.runs {
		c.runs[mark] = &run{of: r.of, paid: r.paid, places: slices.Clone(r.places)}
	}
	return c
}

// Equal reports whether two lines are in the same state: asked the same from now on, they answer the same. It may
// report a difference that no longer counts.
func (l *Line) Equal(other *Line) bool {
	return l.all.equal(other.all) && l.pulled == other.pulled && l.playing == other.playing &&
		maps.EqualFunc(l.jobs, other.jobs, (*record).equal) &&
		l.timers.equal(&other.timers) && l.overdues.equal(&other.overdues) &&
		maps.EqualFunc(l.keys, other.keys, (*key).equal) &&
		maps.EqualFunc(l.lanes, other.lanes, (*lane).equal) &&
		maps.EqualFunc(l.queues, other.queues, (*queue).equal) &&
		maps.Equal(l.claims, other.claims) &&
		maps.EqualFunc(l.set, other.set, scopeSet.equal) &&
		maps.EqualFunc(l.runs, other.runs, (*run).equal) &&
		l.shares.equal(&other.shares) &&
		maps.EqualFunc(l.late, other.late, (*ranked[int64]).equal) &&
		maps.Equal(l.settled, other.settled)
}

func (s scopeSet) equal(other scopeSet) bool {
	return s.mode == other.mode && s.modeEnds == other.modeEnds && s.limitsEnd == other.limitsEnd &&
		sameLimits(s.limits, other.limits)
}

// sameLimits distinguishes no limits from an empty list.
func sameLimits(a, b []Limit) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

func (r *run) equal(other *run) bool {
	return r.of == other.of && r.paid == other.paid && slices.Equal(r.places, other.places)
}

func (r *record) equal(other *record) bool {
	return r.state == other.state && r.slot == other.slot && r.arrival == other.arrival && r.lane == other.lane &&
		r.counted == other.counted && r.taken == other.taken && slices.Equal(r.costs, other.costs)
}

func (l *lane) equal(other *lane) bool {
	return l.name == other.name && slices.EqualFunc(l.jobs, other.jobs, element.equal)
}

func (p element) equal(other element) bool {
	return p.id == other.id && p.arrival == other.arrival && slices.Equal(p.costs, other.costs)
}

// clone leaves out the fields of one call.
func (k *key) clone() *key {
	own := &key{name: k.name, pause: k.pause, own: k.own, ownEnds: k.ownEnds, adapted: k.adapted, seen: k.seen,
		offset: k.offset}
	for _, d := range k.ledgers {
		own.ledgers = append(own.ledgers, &ledger{
			Span: d.Span, precision: d.precision, since: d.since, spent: append(entries(nil), d.spent...),
			booked: append(entries(nil), d.booked...), edges: d.edges,
		})
	}
	return own
}

func (k *key) equal(other *key) bool {
	return k.name == other.name && k.pause == other.pause && k.adapted == other.adapted && k.seen == other.seen &&
		k.offset == other.offset &&
		sameLimits(k.own, other.own) && k.ownEnds == other.ownEnds &&
		slices.EqualFunc(k.ledgers, other.ledgers, (*ledger).equal)
}

func (d *ledger) equal(other *ledger) bool {
	return d.Span == other.Span && d.precision == other.precision && d.since == other.since &&
		slices.Equal(d.spent, other.spent) && slices.Equal(d.booked, other.booked)
}

func (q *queue) clone() *queue {
	own := &queue{
		tags: q.tags.clone(), lanes: make(map[string]*classLanes), classes: make(map[string]*ClassTags),
		finish: q.finish.clone(), let: maps.Clone(q.let),
		virtual: q.virtual, walking: q.walking, walkFlow: q.walkFlow, walkIn: q.walkIn, walkLane: q.walkLane, again: q.again,
	}
	for flow, lanes := range q.lanes {
		copied := lanes.clone()
		own.lanes[flow] = &copied
	}
	for flow, tags := range q.classes {
		copied := *tags
		own.classes[flow] = &copied
	}
	return own
}

func (q *queue) equal(other *queue) bool {
	sameWalk := q.walking == other.walking && (!q.walking || q.walkFlow == other.walkFlow &&
		q.walkIn == other.walkIn && q.walkLane == other.walkLane && q.again == other.again)
	return q.virtual == other.virtual && sameWalk && q.tags.equal(&other.tags) &&
		maps.EqualFunc(q.lanes, other.lanes, (*classLanes).equal) &&
		maps.EqualFunc(q.classes, other.classes, func(a, b *ClassTags) bool { return *a == *b }) &&
		q.finish.equal(&other.finish) && maps.Equal(q.let, other.let)
}

func (c *classLanes) clone() (own classLanes) {
	for i := range c {
		own[i] = c[i].clone()
	}
	return own
}

func (c *classLanes) equal(other *classLanes) bool {
	for i := range c {
		if !c[i].equal(&other[i]) {
			return false
		}
	}
	return true
}

// clone returns a heap in order, so that clones with the same content are the same.
func (r *ranked[S]) clone() (own ranked[S]) {
	ordered := slices.Clone(r.heap)
	slices.SortFunc(ordered,
		func(a, b scored[S]) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name)) })
	for _, x := range ordered {
		own.set(x.name, x.score)
	}
	return own
}

// equal reports whether both have the same names with the same scores, whatever the order of their heaps.
func (r *ranked[S]) equal(other *ranked[S]) bool {
	if r.len() != other.len() {
		return false
	}
	for name, score := range r.all() {
		if has, is := other.get(name); !is || has != score {
			return false
		}
	}
	return true
}
