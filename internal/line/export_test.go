package line

import (
	"fmt"
	"maps"
	"slices"
)

// Heads are the first jobs of all lanes, for tests.
func (l *Line) Heads() (heads []Job) {
	for _, name := range slices.Sorted(maps.Keys(l.lanes)) {
		lane := l.lanes[name]
		for _, p := range lane.jobs {
			if l.waits(lane, p) {
				heads = append(heads, Job{ID: p.id, Lane: lane.name, Costs: p.costs})
				break
			}
		}
	}
	return heads
}

// HasRoom tells whether all scope keys of a lane have room for a job now, promises counted.
func (l *Line) HasRoom(now int64, settings Settings, lane string, costs []int64) bool {
	l.begin(now, settings)
	defer l.end()
	return l.earliest(l.lane(lane), costs, now, true, Enforce).at == now
}

// HasTurn tells whether it is a lane's turn wherever flows stand under its scope keys.
func (l *Line) HasTurn(now int64, settings Settings, name string) bool {
	l.begin(now, settings)
	defer l.end()
	lane, turn := l.lanes[name], false
	for _, key := range lane.keys {
		q := l.queues[key]
		if q == nil {
			continue
		}
		if q.has(lane) {
			flow, _, _ := q.first()
			turn = flow == lane.flow && q.lanes[flow].at(0, q.classes[flow]) == name && l.contended(lane, key) == ""
		}
	}
	return turn
}

// Tag is that of a flow under a scope key where flows stand.
func (l *Line) Tag(name, flow string) float64 {
	q := l.queues[name]
	if tag, stands := q.tags.get(flow); stands {
		return tag
	}
	return q.startTag(flow)
}

// Standing are the flows that stand under a scope key.
func (l *Line) Standing(name string) (flows []string) {
	if q := l.queues[name]; q != nil {
		for flow := range q.tags.all() {
			flows = append(flows, flow)
		}
	}
	return flows
}

// Passed are the flows under a scope key whose tags the virtual time has come by.
func (l *Line) Passed(name string) (flows []string) {
	if q := l.queues[name]; q != nil {
		for flow, tag := range q.tags.all() {
			if tag < q.virtual {
				flows = append(flows, flow)
			}
		}
	}
	return flows
}

// OutOfTurn is how many jobs of each flow can be booked out of its turn under a scope key:
// those that have a claim, and one that had its turn there and stands elsewhere.
func (l *Line) OutOfTurn(name string) map[string]int {
	jobs := make(map[string]int)
	seen := make(map[string]bool)
	for _, c := range l.claims {
		if known := l.jobs[c.id]; known != nil && !seen[c.id] {
			seen[c.id] = true
			jobs[l.lane(known.lane).flow]++
		}
	}
	if q := l.queues[name]; q != nil {
		for flow := range q.let {
			jobs[flow]++
		}
	}
	return jobs
}

// Dump tells how everything stands, for tests.
func (l *Line) Dump(now int64) string {
	s := ""
	timer := func(name string) float64 {
		at, _ := l.timers.get(name)
		return float64(at-now) / 1e6
	}
	for name, q := range l.queues {
		s += fmt.Sprintf("queue %s timer %+.2f virtual %.2f:", name, timer(name), q.virtual)
		for f, tag := range q.tags.all() {
			s += fmt.Sprintf(" %s@%.2f", f, tag)
			for i := range q.lanes[f] {
				for ln := range q.lanes[f][i].all() {
					p := l.lanes[ln].jobs[0]
					s += fmt.Sprintf("[%s %d jobs, first %v %s]", ln, len(l.lanes[ln].jobs), p.costs, p.id)
				}
			}
		}
		s += "\n"
	}
	for name, c := range l.claims {
		s += fmt.Sprintf("claim %s at %+.2f %s timer %+.2f\n", name, float64(c.at-now)/1e6, c.id, timer("+"+c.id))
	}
	return s
}
