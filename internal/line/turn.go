package line

// firstJob drops jobs from a lane that have left, and returns its first. If it returns none, the lane has ended or,
// where more is true, there are more jobs to drop than one pull may.
func (p *puller) firstJob(lane *lane) (first *element, more bool) {
	for len(lane.jobs) > 0 && !p.waits(lane, lane.jobs[0]) {
		if p.drops == 0 {
			p.looks = 0
			return nil, true
		}
		p.drops--
		lane.jobs = lane.jobs[1:]
	}
	if len(lane.jobs) == 0 {
		p.endLane(lane)
		return nil, false
	}
	return &lane.jobs[0], false
}

// takeOut takes the first job out of a lane.
func (p *puller) takeOut(lane *lane) element {
	job := lane.jobs[0]
	lane.jobs = lane.jobs[1:]
	return job
}

// waits reports whether a job waits at this element of its lane.
func (l *Line) waits(lane *lane, at element) bool {
	known := l.jobs[at.id]
	return known != nil && known.state == waiting && known.arrival == at.arrival && known.lane == lane.name
}

// endIfTired ends a pull at the check at which the script, which has taken its steps, ended.
func (p *puller) endIfTired() {
	if p.checks++; p.Ends > 0 && p.checks >= p.Ends {
		p.looks = 0
	}
}

// throwOut throws out the first job of a lane if it never fits, since it holds up the jobs behind it: it asks again,
// and the answer says so. It returns the first job then, whether one was thrown out, and whether there are more to drop
// than one pull may.
func (p *puller) throwOut(lane *lane) (first *element, thrown, more bool) {
	first, more = p.firstJob(lane)
	if first == nil || p.neverFits(lane, first.costs) == nil {
		return first, false, more
	}
	job := p.takeOut(lane)
	p.reportOverdue(Told{job.id, p.now, lane.name})
	first, more = p.firstJob(lane)
	return first, true, more
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
		first, thrown, more := p.throwOut(lane)
		switch {
		case more:
			return nil, 0, false
		case first == nil:
			p.leave(queue, lane)
		case !thrown:
			return lane, tag, false
		default:
			q.leads(lane, first.arrival)
		}
	}
	return nil, 0, false
}

// bookFirst books the first job of a lane and takes it out. The caller reports the booking.
func (p *puller) bookFirst(lane *lane, at int64) {
	job := p.takeOut(lane)
	sign := 1.0
	if p.hasLost(job.id) {
		sign = 0
	}
	p.promise(job.id, lane, job.costs, at, job.arrival)
	p.bookings--
	p.charge(lane, job.costs, sign)
	p.firstJob(lane)
}

// move puts a lane into another queue.
func (p *puller) move(from, to string, lane *lane, look int64) {
	p.stand(to, lane, look)
	p.leave(from, lane)
}
