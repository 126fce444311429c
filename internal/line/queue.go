package line

import (
	"math"
)

// queue is what stands under one scope key: flows by their start tags, and of each flow
// its lanes by the arrival of their first jobs.
type queue struct {
	tags    map[string]float64          // start tags of the flows that stand here
	lanes   map[string]map[string]int64 // of a flow: arrival by lane
	finish  map[string]float64          // finish tags of flows that do not stand here
	let     map[string]bool             // flows that have had their turn here and stand elsewhere
	virtual float64
}

func newQueue() *queue {
	return &queue{
		tags: make(map[string]float64), lanes: make(map[string]map[string]int64),
		finish: make(map[string]float64), let: make(map[string]bool),
	}
}

// first is the flow whose turn it is.
func (q *queue) first() (flow string, tag float64, stands bool) {
	for f, t := range q.tags {
		if !stands || t < tag || t == tag && f < flow {
			flow, tag, stands = f, t, true
		}
	}
	return flow, tag, stands
}

// head is the lane of a flow whose first job came first.
func (q *queue) head(flow string) (lane string) {
	arrival, found := int64(0), false
	for l, a := range q.lanes[flow] {
		if !found || a < arrival || a == arrival && l < lane {
			lane, arrival, found = l, a, true
		}
	}
	return lane
}

// startTag is where a flow stands, or would.
func (q *queue) startTag(flow string) float64 {
	if tag, stands := q.tags[flow]; stands {
		return tag
	}
	return max(q.virtual, q.finish[flow])
}

// stand puts a lane into the queue. A flow that comes anew moves the virtual time on by as
// little as can be: flows with equal tags keep the order in which they came.
func (q *queue) stand(flow, lane string, arrival int64) {
	if q.lanes[flow] == nil {
		q.lanes[flow] = make(map[string]int64)
	}
	q.lanes[flow][lane] = arrival
	if _, stands := q.tags[flow]; !stands {
		q.tags[flow] = q.startTag(flow)
		delete(q.finish, flow)
		q.virtual += max(1e-6, math.Abs(q.virtual)*1e-15)
	}
}

// leave takes a lane out of the queue. What the flow has had is kept as long as others
// stand here.
func (q *queue) leave(flow, lane string) {
	delete(q.lanes[flow], lane)
	if len(q.lanes[flow]) > 0 {
		return
	}
	delete(q.lanes, flow)
	if tag, stands := q.tags[flow]; stands {
		q.finish[flow] = tag
		delete(q.tags, flow)
	}
}

// charge moves a flow's tag on by what it was given. What is given back does not bring it
// before the virtual time.
func (q *queue) charge(flow string, work float64) {
	if tag, stands := q.tags[flow]; stands {
		q.tags[flow] = back(tag, tag+work, q.virtual)
		return
	}
	tag := q.startTag(flow)
	q.finish[flow] = back(tag, tag+work, q.virtual)
}

func back(tag, moved, virtual float64) float64 {
	if moved < tag {
		return min(tag, max(moved, virtual))
	}
	return moved
}
