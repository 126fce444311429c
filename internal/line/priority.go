package line

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Priorities is the number of priorities: 0 is the highest.
const Priorities = 5

// defaultLower is Settings.Lower where that is 0.
const defaultLower = 9

// class is the jobs of a flow that have the same priority.
type class struct {
	flow     string
	priority int
}

// classOf reads "<flow>" or "<flow>#<priority>".
func classOf(name string) class {
	flow, priority, lower := strings.Cut(name, "#")
	if !lower {
		return class{flow: flow}
	}
	n, err := strconv.Atoi(priority)
	if err != nil || n < 0 || n >= Priorities {
		return class{flow: name}
	}
	return class{flow, n}
}

// classLanes are a flow's lanes in a queue, by their priority and the arrival of their first jobs.
type classLanes [Priorities]ranked[int64]

// inOrder returns the priorities that have lanes in the order of their turns: by their tags; if those are equal, the
// first priority first.
func (c *classLanes) inOrder(tags *ClassTags) (priorities []int) {
	for priority := range c {
		if c[priority].len() > 0 {
			priorities = append(priorities, priority)
		}
	}
	slices.SortStableFunc(priorities, func(a, b int) int { return cmp.Compare(tags.of(a), tags.of(b)) })
	return priorities
}

// at returns the lane of a rank, in the order of their turns; empty if there are not so many.
func (c *classLanes) at(rank int, tags *ClassTags) (lane string) {
	for _, priority := range c.inOrder(tags) {
		if lane, _, is := c[priority].at(rank); is {
			return lane
		}
		rank -= c[priority].len()
	}
	return ""
}

func (c *classLanes) add(lane *lane, arrival int64) { c[lane.priority].set(lane.name, arrival) }

// remove removes a lane. It reports whether the flow has other lanes.
func (c *classLanes) remove(lane *lane) bool {
	c[lane.priority].delete(lane.name)
	return slices.ContainsFunc(c[:], func(lanes ranked[int64]) bool { return lanes.len() > 0 })
}

// ClassTags divide what a flow is served under a scope key among its priorities, by start-time
// fair queueing again, one level below the flows: a unit of a lower priority counts for more.
// They are kept once a lane of a lower priority has stood there.
type ClassTags struct {
	Virtual float64
	Tags    [Priorities]float64
}

// of returns the tag of a priority. For nil, all priorities have the same tag.
func (t *ClassTags) of(priority int) float64 {
	if t == nil {
		return 0
	}
	return max(t.Virtual, t.Tags[priority])
}

// serve moves the virtual time on to the priority whose turn it is.
func (t *ClassTags) serve(priority int) {
	if t != nil {
		t.Virtual = t.of(priority)
	}
}

// charge moves a priority's tag by work of which each unit counts for a power of lower.
func (t *ClassTags) charge(priority int, work, lower float64, leaves bool) {
	if t != nil {
		t.Tags[priority] = movedBy(t.of(priority), work*math.Pow(lower, float64(priority)), t.Virtual, leaves)
	}
}
