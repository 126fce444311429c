package completion

import (
	"slices"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
)

// grant is one start that the throttle allowed, on Redis' clock.
type grant struct {
	start            time.Time
	prompt           *prompt.Prompt
	charged, settled int64     // tokens
	told             bool      // it was settled to what the provider says
	less             time.Time // from when on it may be charged what was settled, or nothing; zero if never
	used             chat.Usage
	ended            bool
	returned         bool // the charge was given back: the provider asked to wait, or was not reached
}

// grants is all starts of a run, as the handler was told them. It is safe for concurrent
// use.
type grants struct {
	mu   sync.Mutex
	list []*grant
}

// add notes a grant.
func (g *grants) add(one *grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one.settled = one.charged
	g.list = append(g.list, one)
}

// settle notes what a grant took, from when on it may be charged that, and whether it is.
func (g *grants) settle(one *grant, used chat.Usage, since time.Time, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one.used, one.told, one.less = used, done, since
	if done {
		one.settled = used.TotalTokens
	}
}

// end notes that the handler has returned, and whether the charge is given back. It returns
// what it took, as far as that is known.
func (g *grants) end(one *grant, at time.Time, returned bool) chat.Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	one.ended, one.returned = true, returned
	if returned {
		one.less = at
	}
	return one.used
}

// inHand is how many handlers run.
func (g *grants) inHand() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, one := range g.list {
		if !one.ended {
			n++
		}
	}
	return n
}

// settledSince adds up the tokens of the starts after an instant.
func (g *grants) settledSince(instant time.Time) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	var tokens int64
	for _, one := range g.list {
		if one.start.After(instant) && !one.returned {
			tokens += one.settled
		}
	}
	return tokens
}

// all returns copies of the grants so far, the earliest first.
func (g *grants) all() []grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]grant, len(g.list))
	for i, one := range g.list {
		all[i] = *one
	}
	slices.SortStableFunc(all, func(a, b grant) int { return a.start.Compare(b.start) })
	return all
}

// delays returns the longest time from a granted start to the arrival of its request, and
// the shortest. A request belongs to the latest start of its prompt before it; with none
// before it (the clocks differ), to the first. Both are 0 without requests.
func delays(granted []grant, requests []provider.Request) (longest, shortest time.Duration) {
	starts := make(map[string][]time.Time)
	for _, g := range granted {
		starts[g.prompt.ID] = append(starts[g.prompt.ID], g.start)
	}
	first := true
	for _, r := range requests {
		of := starts[r.ID]
		if len(of) == 0 {
			continue
		}
		began := of[0]
		for _, later := range of[1:] {
			if !later.After(r.At) {
				began = later
			}
		}
		delay := r.At.Sub(began)
		if first {
			longest, shortest, first = delay, delay, false
		}
		longest, shortest = max(longest, delay), min(shortest, delay)
	}
	return longest, shortest
}
