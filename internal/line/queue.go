package line

import (
	"cmp"
	"math"
	"strings"
)

// queue holds the lanes under one scope key: flows by their start tags, and the lanes of each flow by their priority
// and the arrival of their first jobs.
type queue struct {
	tags    ranked[float64] // start tags of the flows that stand here
	lanes   map[string]*classLanes
	classes map[string]*ClassTags // of flows that have had lanes of a lower priority here
	// finish tags of flows that do not stand here; a tag up to the virtual time does not count
	finish             ranked[float64]
	let                map[string]bool // flows that have had their turn here and stand elsewhere
	virtual            float64
	walking            bool   // the next look continues the walk along the lanes
	walkIn             string // the flow that the walk has reached
	walkFlow, walkLane int    // how many flows the walk has passed, and how many lanes of walkIn
	again              int64  // when the pull looks again at the lanes that the walk has passed
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
		q.lanes[lane.flow].add(lane, arrival)
	}
	return stands
}

// startTag returns the start tag that a flow has, or would have, in the queue.
func (q *queue) startTag(flow string) float64 {
	if tag, stands := q.tags.get(flow); stands {
		return tag
	}
	finish, _ := q.finish.get(flow)
	return max(q.virtual, finish)
}

// add puts a lane among those of its flow.
func (q *queue) add(lane *lane, arrival int64) {
	if q.lanes[lane.flow] == nil {
		q.lanes[lane.flow] = new(classLanes)
	}
	q.lanes[lane.flow].add(lane, arrival)
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
	if lanes := q.lanes[lane.flow]; lanes != nil && lanes.remove(lane) {
		return
	}
	delete(q.lanes, lane.flow)
	if tag, stands := q.tags.get(lane.flow); stands {
		q.setFinishTag(lane.flow, tag)
		q.tags.delete(lane.flow)
	}
}

// charge moves a flow's tag by the charged work, and the tag of its priority; back if a job leaves.
func (q *queue) charge(of class, work, lower float64, leaves bool) {
	flow := of.flow
	q.classes[flow].charge(of.priority, work, lower, leaves)
	if tag, stands := q.tags.get(flow); stands {
		q.tags.set(flow, movedBy(tag, work, q.virtual, leaves))
		return
	}
	q.setFinishTag(flow, movedBy(q.startTag(flow), work, q.virtual, leaves))
}

// walked returns the lane that a walk has reached, and the tag of its flow.
func (q *queue) walked() (lane string, tag float64) {
	for ; ; q.walkFlow++ {
		flow, tag, stands := q.tags.at(q.walkFlow)
		if !stands {
			return "", 0
		}
		if flow != q.walkIn {
			q.walkIn, q.walkLane = flow, 0
		}
		if lane := q.lanes[flow].at(q.walkLane, q.classes[flow]); lane != "" {
			return lane, tag
		}
	}
}

func (l *Line) queue(name string) *queue {
	if l.queues[name] == nil {
		l.queues[name] = newQueue()
	}
	return l.queues[name]
}

func (l *Line) lower() float64 { return float64(cmp.Or(l.settings.Lower, defaultLower)) }

// due sets a timer; an earlier timer stays. The timer also covers the lanes that a walk has passed.
func (l *Line) due(name string, at int64) {
	if t, set := l.timers.get(name); !set || at < t {
		l.timers.set(name, at)
	}
	if q := l.queues[name]; q != nil && q.walking {
		q.again = min(q.again, at)
	}
}

// hurry makes a scope key due now if lanes stand under it, and the job that has a claim there.
func (l *Line) hurry(name string) {
	for _, timer := range []string{name, "+" + l.claims[name].id} {
		if t, set := l.timers.get(timer); set && t > l.now {
			l.timers.set(timer, l.now)
		}
	}
	if q := l.queues[name]; q != nil && q.walking {
		q.again = l.now
	}
}

// hurryLane makes the scope keys of a lane due.
func (l *Line) hurryLane(lane *lane) {
	for _, name := range lane.keys {
		l.hurry(name)
	}
}

// hurryAll makes all scope keys with this prefix due now, and all claims.
func (l *Line) hurryAll(prefix string) {
	var late []string
	for name, at := range l.timers.all() {
		if name[0] != '=' && (name[0] == '+' || strings.HasPrefix(name, prefix)) && at > l.now {
			late = append(late, name)
		}
	}
	for _, name := range late {
		l.timers.set(name, l.now)
	}
}

// Next returns when the next pull is due, 0 if nothing waits.
func (l *Line) Next() int64 {
	_, next, _ := l.timers.first()
	return next
}

// contended returns a scope key of a lane under which other flows have their turn before this flow; "" if there is
// none. The scope key but is left out. A new job, for which but is "", may go before flows whose scope key is not
// looked at until later: it has no room for them until then.
func (l *Line) contended(lane *lane, but string) string {
	for _, name := range lane.keys {
		q := l.queues[name]
		if name == but || q == nil || l.key(name).mode != Enforce {
			continue
		}
		if look, _ := l.timers.get(name); but == "" && look > l.now {
			continue
		}
		_, tag, stands := q.first()
		if stands && !q.let[lane.flow] && tag <= q.startTag(lane.flow) {
			return name
		}
	}
	return ""
}

// charge moves a flow's tags on under the scope keys where lanes stand. A flow that is served moves the virtual time of
// its classes too.
func (l *Line) charge(lane *lane, costs []int64, sign float64) {
	for i, name := range lane.keys {
		if q := l.queues[name]; q != nil {
			if sign >= 0 {
				delete(q.let, lane.flow)
				q.classes[lane.flow].serve(lane.priority)
			}
			q.charge(lane.class, sign*float64(costs[i])/l.share(lane.flow), l.lower(), sign < 0)
		}
	}
}

// chargeDifference moves a flow's tags by the difference between the costs that it was charged and other costs. A job
// that costs less leaves room.
func (l *Line) chargeDifference(lane *lane, charged, costs []int64) {
	for i, name := range lane.keys {
		if costs[i] < charged[i] {
			l.hurry(name)
		}
		if q := l.queues[name]; q != nil {
			q.charge(lane.class, float64(costs[i]-charged[i])/l.share(lane.flow), l.lower(), false)
		}
	}
}

// stand puts a lane into the queue of a scope key. A pull looks at the scope key then, or before.
func (l *Line) stand(name string, lane *lane, look int64) {
	l.queue(name).stand(lane, lane.jobs[0].arrival)
	l.due(name, look)
}

// leave takes a lane out of its queue.
func (l *Line) leave(name string, lane *lane) {
	q := l.queues[name]
	q.leave(lane)
	l.tidy(name)
}

// tidy deletes a scope key's queue, and its tags, when no flow stands there.
func (l *Line) tidy(name string) {
	if !l.stands(name) {
		delete(l.queues, name)
	}
}

// stands reports whether flows stand in a queue.
func (l *Line) stands(name string) bool {
	q := l.queues[name]
	return q != nil && q.tags.len() > 0
}

// lookedAtAfter is the longest time between two looks at a scope key without room: another process may have other
// limits, or the clock may have been set.
const lookedAtAfter = 300_000_000

// soon returns when a pull looks again at a scope key that has room at an instant: at that instant, at the end of its
// settings, or after lookedAtAfter, whichever comes first. In a forecast nothing changes unseen, so it needs no
// lookedAtAfter.
func (l *Line) soon(at, ends int64) int64 {
	if l.playing {
		return min(at, ends)
	}
	return min(at, ends, l.now+lookedAtAfter)
}
