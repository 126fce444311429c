package line

// shareSecond is the weight of a second in the score of a share. A share is kept for a limited number of seconds: a
// waiting job asks again within that time, and states its share anew.
const (
	shareSecond = 1 << 20
	shareKept   = 864_000
	// mostShares is how many are kept, about a megabyte. The share of a flow beyond them is 1 until its next job asks.
	mostShares = 10_000
)

func (l *Line) share(flow string) float64 {
	score, _ := l.shares.get(flow)
	return float64(max(1, score%shareSecond))
}

func (l *Line) setShare(flow string, share int64) {
	if share > 1 {
		l.shares.set(flow, l.now/1_000_000*shareSecond+share)
		if first, _, _ := l.shares.first(); l.shares.len() > mostShares {
			l.shares.delete(first)
		}
	} else {
		l.shares.delete(flow)
	}
}

// forgetShares forgets some of the shares that no job has stated for long.
func (l *Line) forgetShares() {
	for range forgottenAtOnce {
		flow, score, is := l.shares.first()
		if !is || score > (l.now/1_000_000-shareKept)*shareSecond {
			return
		}
		l.shares.delete(flow)
	}
}

// mostTags is how many finish tags a queue keeps: the highest. forgottenAtOnce is how many passed tags one look forgets
// at most, and how many shares one pull.
const (
	mostTags        = 1000
	forgottenAtOnce = 50
)

func (q *queue) setFinishTag(flow string, tag float64) {
	q.finish.set(flow, tag)
	if first, _, _ := q.finish.first(); q.finish.len() > mostTags {
		q.forgetFlow(first)
	}
}

// forgetFinished forgets some of the flows whose finish tags the virtual time has passed.
func (q *queue) forgetFinished() {
	passed := q.finish.until(q.virtual)
	for _, flow := range passed[:min(len(passed), forgottenAtOnce)] {
		q.forgetFlow(flow)
	}
}

// forgetFlow forgets the finish tag and the class tags of a flow that does not stand here.
func (q *queue) forgetFlow(flow string) {
	q.finish.delete(flow)
	delete(q.classes, flow)
}

// movedBy returns where work moves a tag. A job that leaves moves it back, but not further than four times its work
// before the virtual time: if all jobs of a flow leave, as those of deleted tasks do, other flows have turns meanwhile.
// Work moves a tag on even if it is less than the distance to the next number: else the flow would stay first.
func movedBy(tag, work, virtual float64, leaves bool) float64 {
	if leaves {
		return min(tag, max(tag+work, virtual+4*work))
	}
	if work > 0 {
		return max(tag+work, tag+tag*0x1p-52)
	}
	return tag + work
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
