package throttle

import (
	"slices"
	"time"
)

// clocksAhead is how far ahead a process publishes the changes of clocks. clocksAlike is how far ahead those of two
// processes are compared: it is shorter, since the two published at different times.
const (
	clocksAlike = 700 * 24 * time.Hour
	clocksAhead = clocksAlike + 30*24*time.Hour
)

// clocksOf returns an instant in each zone of a quota or of hours, and the changes of its clock after it.
func clocksOf(scopes []Scope, now time.Time) map[string][]time.Time {
	var clocks map[string][]time.Time
	for _, s := range scopes {
		for _, l := range s.Limits {
			zone, err := time.LoadLocation(l.Zone())
			if l.Zone() == "" || err != nil {
				continue
			}
			if clocks == nil {
				clocks = make(map[string][]time.Time)
			}
			clocks[l.Zone()] = changesOf(now.In(zone))
		}
	}
	return clocks
}

// changesOf returns an instant, and when the clock of its zone will be changed after it.
func changesOf(now time.Time) []time.Time {
	changes := []time.Time{now.Truncate(time.Second)}
	for _, next := now.ZoneBounds(); !next.IsZero() && next.Sub(now) < clocksAhead; _, next = next.ZoneBounds() {
		changes = append(changes, next)
	}
	return changes
}

// offsetsOf returns what two clocks show when they first differ; two empty texts if they are alike as far as both are
// known.
func offsetsOf(mine, others []time.Time) (string, string) {
	if len(mine) == 0 || len(others) == 0 {
		return "", ""
	}
	from, until := mine[0], others[0]
	if until.After(from) {
		from, until = until, from
	}
	instants := slices.Concat(mine, others)
	slices.SortFunc(instants, time.Time.Compare)
	for _, at := range instants {
		if at.Before(from) || at.After(until.Add(clocksAlike)) {
			continue
		}
		if my, other := shownAt(mine, at), shownAt(others, at); my != other {
			return my, other
		}
	}
	return "", ""
}

// shownAt is what a clock shows at an instant.
func shownAt(changes []time.Time, at time.Time) string {
	_, offset := changes[0].Zone()
	for _, change := range changes {
		if !change.After(at) {
			_, offset = change.Zone()
		}
	}
	return at.In(time.FixedZone("", offset)).Format("2006-01-02 15:04 -07:00")
}
