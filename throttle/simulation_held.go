package throttle

import (
	"math"
	"slices"
)

// hold sets a lane aside among those that wait for the same scope key.
func (s *simulation) hold(lane *simLane, key *scopeKeyState, score float64) {
	if !slices.Contains(s.holders, key) {
		s.holders = append(s.holders, key)
	}
	lane.until, lane.score, lane.letIn = math.MaxInt64, score, false
	key.held = append(key.held, lane)
}

// first takes the first of the lanes out that a scope key holds.
func (k *scopeKeyState) first() *simLane {
	first := 0
	for i, lane := range k.held {
		lane.score = max(lane.score, lane.fair.served)
		if k.held[first].after(lane) {
			first = i
		}
	}
	lane := k.held[first]
	k.held = slices.Delete(k.held, first, first+1)
	return lane
}

// after tells that a lane that is held comes after another.
func (l *simLane) after(other *simLane) bool {
	if l.score == other.score {
		return l.head().arrival > other.head().arrival
	}
	return l.score > other.score
}

// contested is the first of a lane's scope keys that holds others; nil if none does.
func (l *simLane) contested() *scopeKeyState {
	for _, key := range l.keys {
		if len(key.held) > 0 {
			return key
		}
	}
	return nil
}

// outstripped is the scope key whose held lanes have a claim before this one, now that
// it was served; nil if there is none.
func (l *simLane) outstripped() *scopeKeyState {
	for _, key := range l.keys {
		for _, other := range key.held {
			if max(other.score, other.fair.served) <= l.fair.tag {
				return key
			}
		}
	}
	return nil
}
