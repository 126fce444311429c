package line

import (
	"math"
)

// queue is what stands under one scope key: flows by their start tags, and of each flow
// its lanes by their priority and the arrival of their first jobs.
type queue struct {
	tags    ranked[float64] // start tags of the flows that stand here
	lanes   map[string]*classLanes
	classes map[string]*ClassTags // of flows that have had lanes of a lower priority here
	finish  map[string]float64    // finish tags of flows that do not stand here
	let     map[string]bool       // flows that have had their turn here and stand elsewhere
	aside   map[string]float64    // of flows whose first job is heavy and waits aside: its work
	virtual float64
	madeWay int64 // since when flows make way for a claim; 0: they do not
}

func newQueue() *queue {
	return &queue{lanes: make(map[string]*classLanes), classes: make(map[string]*ClassTags), finish: make(map[string]float64), let: make(map[string]bool), aside: make(map[string]float64)}
}

// first is the flow whose turn it is.
func (q *queue) first() (flow string, tag float64, stands bool) { return q.tags.first() }

// has tells whether a lane stands here.
func (q *queue) has(lane *lane) bool {
	lanes := q.lanes[lane.flow]
	if lanes == nil {
		return false
	}
	_, stands := lanes[lane.priority].get(lane.name)
	return stands
}

// leads gives a lane that stands here another first job. It returns false if it does not.
func (q *queue) leads(lane *lane, arrival int64) bool {
	stands := q.has(lane)
	if stands {
		q.lanes[lane.flow][lane.priority].set(lane.name, arrival)
	}
	return stands
}

// add puts a lane among those of its flow.
func (q *queue) add(lane *lane, arrival int64) {
	if q.lanes[lane.flow] == nil {
		q.lanes[lane.flow] = new(classLanes)
	}
	q.lanes[lane.flow][lane.priority].set(lane.name, arrival)
}

// startTag is where a flow stands, or would. One whose heavy job has waited aside comes back
// where it was, by no more than that job before the virtual time.
func (q *queue) startTag(flow string) float64 {
	if tag, stands := q.tags.get(flow); stands {
		return tag
	}
	return max(q.virtual-q.aside[flow], q.finish[flow])
}

// stand puts a lane into the queue. A flow that comes anew moves the virtual time on by as
// little as can be: flows with equal tags keep the order in which they came.
func (q *queue) stand(lane *lane, arrival int64) {
	q.add(lane, arrival)
	if lane.priority > 0 && q.classes[lane.flow] == nil {
		q.classes[lane.flow] = new(ClassTags)
	}
	if _, stands := q.tags.get(lane.flow); !stands {
		q.tags.set(lane.flow, q.startTag(lane.flow))
		delete(q.finish, lane.flow)
		delete(q.aside, lane.flow)
		q.virtual += max(1e-6, math.Abs(q.virtual)*1e-15)
	}
}

// park puts a lane into a queue of parked lanes, by the tag that its flow has under the scope
// key.
func (q *queue) park(lane *lane, arrival int64, tag float64) {
	q.add(lane, arrival)
	if _, stands := q.tags.get(lane.flow); !stands {
		q.tags.set(lane.flow, tag)
	}
}

// leave takes a lane out of the queue. What the flow has had is kept as long as others
// stand here.
func (q *queue) leave(lane *lane) {
	if lanes := q.lanes[lane.flow]; lanes != nil {
		lanes[lane.priority].delete(lane.name)
		if !lanes.empty() {
			return
		}
	}
	delete(q.lanes, lane.flow)
	if tag, stands := q.tags.get(lane.flow); stands {
		q.finish[lane.flow] = tag
		q.tags.delete(lane.flow)
	}
}

// charge moves a flow's tag on by the work that is charged, and that of its priority. A refund moves it back to four
// times the refund before the virtual time at most: a job that found room at once had moved
// no tag, and others are booked before the first of them is settled.
func (q *queue) charge(of class, work, lower float64) {
	flow := of.flow
	q.classes[flow].charge(of.priority, work, lower)
	if tag, stands := q.tags.get(flow); stands {
		q.tags.set(flow, back(tag, tag+work, q.virtual))
		return
	}
	if known, is := q.aside[flow]; is && work < 0 {
		q.aside[flow] = max(known, -4*work)
	}
	tag := q.startTag(flow)
	q.finish[flow] = back(tag, tag+work, q.virtual)
}

func back(tag, moved, virtual float64) float64 {
	if moved < tag {
		return min(tag, max(moved, virtual-4*(tag-moved)))
	}
	return moved
}
