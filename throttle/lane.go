package throttle

import (
	"slices"
	"strings"
	"time"
)

// Lane names a lane: the jobs that have the same scope keys. It is the fair key,
// a bar and the other scope keys, "acme|domain=gmail.com", encoded as in Redis;
// the empty Lane is none.
type Lane string

// laneOf names the lane of a job that meets these scope keys.
func (t *Throttle) laneOf(met []meets) Lane {
	fair := ""
	var others []string
	for _, m := range met {
		switch {
		case m.scope.Name == t.fair:
			fair = m.encoded
		case m.scope.Name != Global:
			others = append(others, m.scope.Name+"="+m.encoded)
		}
	}
	slices.Sort(others) // processes may list their scopes in another order
	return Lane(fair + "|" + strings.Join(others, ","))
}

// fairKey is the encoded fair key of a lane.
func (l Lane) fairKey() string {
	fair, _, _ := strings.Cut(string(l), "|")
	return fair
}

// meetingsOf lists the scope keys that a lane's jobs are counted under. The keys
// that only their hash is left of stay encoded.
func (t *Throttle) meetingsOf(lane Lane) ([]meets, error) {
	fair, rest, isLane := strings.Cut(string(lane), "|")
	keys := make(map[string]string)
	if fair != "" {
		keys[t.fair] = fair
	}
	for pair := range strings.SplitSeq(rest, ",") {
		if name, encoded, isPair := strings.Cut(pair, "="); isPair {
			keys[name] = encoded
		}
	}
	var met []meets
	for i := range t.scopes {
		scope := &t.scopes[i]
		encoded, named := keys[scope.Name]
		if named || scope.Name == Global {
			key, readable := decode(encoded)
			if !readable {
				key = encoded
			}
			met = append(met, meets{scope: scope, key: key, encoded: encoded})
		}
		delete(keys, scope.Name)
	}
	if !isLane || len(keys) > 0 || t.laneOf(met) != lane {
		return nil, &InvalidJobError{Field: "Lane", Value: lane, Reason: "is no lane of this throttle"}
	}
	return met, nil
}

// The classes of limits: which jobs they hold back together.
const (
	classShared = 'g' // all
	classFair   = 'f' // the fair key's own
	classOther  = 'o' // those of several fair keys
)

// class tells which jobs a limit or a pause of this scope holds back together.
func (t *Throttle) class(scope string) byte {
	switch scope {
	case Global:
		return classShared
	case t.fair:
		return classFair
	}
	return classOther
}

// lineKept is how long the line's keys live after the last write: longer than any
// window that a job may have to wait for, than any slot is ahead, and than a lane
// is likely to wait for its turn.
func lineKept(scopes []Scope, lookahead time.Duration) time.Duration {
	longest := time.Duration(0)
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			longest = max(longest, limit.Window)
		}
	}
	return lookahead + 2*longest + 30*24*time.Hour
}
