package line

// looksOfAClaim is how many looks one look at a claim counts for: it costs as much.
const looksOfAClaim = 8

// claim is the slot of a heavy job that is booked beyond the lookahead. It counts until the slot is within the
// lookahead.
type claim struct {
	at int64
	id string
}

// longest is how long a start counts at most under the key's limits.
func (k *key) longest() int64 {
	length := int64(0)
	for _, limit := range k.limits {
		if limit.Units >= 0 {
			length = max(length, limit.Length)
		}
	}
	return length
}

// claimsUnder reports whether a booking beyond the lookahead is a claim under a scope key: under the one where the lane
// stands, and under any other for which the booking is so near that it keeps other jobs waiting.
func (p *puller) claimsUnder(k *key, queue string, at int64) bool {
	return k.mode == Enforce && (k.name == queue || at-p.now <= 2*k.longest())
}

// claimed returns until when other claims keep a lane from claiming a start: under one limit until the slot of the
// first claim, under several until the latest of these slots; 0 if no claim does. The bookings beyond the lookahead are
// claims, and together they may take half of a limit. Under a running limit a claim keeps places empty, since nobody
// knows when places come back: the next claim waits until the slot of the last.
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
			if sum > 0 && 2*(sum+lane.jobs[0].costs[i]) > k.served(limit, k.horizon) {
				frees = max(frees, d.startOf(first)-k.goesOn)
			}
		}
	}
	return frees
}

// beyond returns the first sub-window beyond the lookahead with claimed units, and the sum of all claimed units. In a
// forecast these units are spent, since each booked job starts at its slot.
func (p *puller) beyond(k *key, d *ledger) (first, sum int64) {
	claims := d.booked
	if p.playing {
		claims = d.spent
	}
	for _, e := range claims {
		if e.at <= d.subWindow(k.time(k.horizon)) {
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
	id := lane.jobs[0].id
	p.bookFirst(lane, at)
	p.noteClaim(name, lane, id, at)
	if p.playing {
		p.told.Booked = append(p.told.Booked, Told{id, at, lane.name})
	}
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

// hasClaim reports whether a job is booked beyond the lookahead.
func (l *Line) hasClaim(id string) bool {
	_, is := l.timers.get("+" + id)
	return is
}
