package line

import (
	"math"
)

// queue holds the lanes under one scope key: flows by their start tags, and the lanes of each flow by their priority
// and the arrival of their first jobs.
type queue struct {
	tags    ranked[float64] // start tags of the flows that stand here
	lanes   map[string]*classLanes
	classes map[string]*ClassTags // of flows that have had lanes of a lower priority here
	// finish tags of flows that do not stand here; what is not after the virtual time does not count
	finish             ranked[float64]
	let                map[string]bool // flows that have had their turn here and stand elsewhere
	virtual            float64
	walking            bool // a walk along the lanes goes on with the next look
	walkIn             string
	walkFlow, walkLane int   // how many flows it has come by, and how many lanes of the next one
	again              int64 // when those that it has come by are looked at again
}

func newQueue() *queue {
	return &queue{lanes: make(map[string]*classLanes), classes: make(map[string]*ClassTags),
		let: make(map[string]bool)}
}

// first returns the flow whose turn it is.
func (q *queue) first() (flow string, tag float64, stands bool) { return q.tags.first() }

// has reports whether a lane stands in the queue.
func (q *queue) has(lane *lane) bool {
	lanes := q.lanes[lane.flow]
	if lanes == nil {
		return false
	}
	_, stands := lanes[lane.priority].get(lane.name)
	return stands
}

// leads gives a lane of the queue another first job. It returns false if the lane does not stand here.
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

// startTag returns the start tag that a flow has, or would have, in the queue.
func (q *queue) startTag(flow string) float64 {
	if tag, stands := q.tags.get(flow); stands {
		return tag
	}
	finish, _ := q.finish.get(flow)
	return max(q.virtual, finish)
}

// stand puts a lane into the queue. A new flow moves the virtual time on by the smallest step: flows with equal tags
// keep the order in which they came.
func (q *queue) stand(lane *lane, arrival int64) {
	q.add(lane, arrival)
	if lane.priority > 0 && q.classes[lane.flow] == nil {
		q.classes[lane.flow] = new(ClassTags)
	}
	if _, stands := q.tags.get(lane.flow); !stands {
		q.tags.set(lane.flow, q.startTag(lane.flow))
		q.finish.delete(lane.flow)
		q.virtual += max(1e-6, math.Abs(q.virtual)*1e-15)
	}
}

// leave takes a lane out of the queue. The queue remembers the flow's tag while other flows stand here.
func (q *queue) leave(lane *lane) {
	if lanes := q.lanes[lane.flow]; lanes != nil {
		lanes[lane.priority].delete(lane.name)
		if !lanes.empty() {
			return
		}
	}
	delete(q.lanes, lane.flow)
	if tag, stands := q.tags.get(lane.flow); stands {
		q.setFinish(lane.flow, tag)
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
	tag := q.startTag(flow)
	q.setFinish(flow, back(tag, tag+work, q.virtual))
}

// mostTags is how many finish tags a queue keeps: the latest ones. One look forgets at most as many expired tags.
const (
	mostTags        = 1000
	forgottenAtOnce = 50
)

func (q *queue) setFinish(flow string, tag float64) {
	q.finish.set(flow, tag)
	if first, _, _ := q.finish.first(); q.finish.len() > mostTags {
		q.forget(first)
	}
}

// forgetFinished forgets some of the flows whose finish tags the virtual time has passed.
func (q *queue) forgetFinished() {
	passed := q.finish.until(q.virtual)
	for _, flow := range passed[:min(len(passed), forgottenAtOnce)] {
		q.forget(flow)
	}
}

// forget forgets the tag of a flow that does not stand here.
func (q *queue) forget(flow string) {
	q.finish.delete(flow)
	delete(q.classes, flow)
}

func back(tag, moved, virtual float64) float64 {
	if moved < tag {
		return min(tag, max(moved, virtual-4*(tag-moved)))
	}
	return moved
}

// walked returns the lane that a walk has reached, and the tag of its flow.
func (q *queue) walked() (lane string, tag float64) {
	for flows := q.tags.sorted(); q.walkFlow < len(flows); q.walkFlow++ {
		flow := flows[q.walkFlow]
		if flow != q.walkIn {
			q.walkIn, q.walkLane = flow, 0
		}
		if lanes := q.lanes[flow].inOrder(q.classes[flow]); q.walkLane < len(lanes) {
			tag, _ := q.tags.get(flow)
			return lanes[q.walkLane], tag
		}
	}
	return "", 0
}
