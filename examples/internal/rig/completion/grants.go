package completion

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
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

// grants is all starts of a run, as the handler was told them.
type grants struct{ account.List[grant] }

// settle notes what a grant took, from when on it may be charged that, and whether it is.
func (g *grants) settle(number int, used chat.Usage, since time.Time, done bool) {
	g.Change(number, func(one *grant) {
		one.used, one.told, one.less = used, done, since
		if done {
			one.settled = used.TotalTokens
		}
	})
}

// end notes that the handler has returned, and whether the charge is given back. It returns
// what it took, as far as that is known.
func (g *grants) end(number int, at time.Time, returned bool) (used chat.Usage) {
	g.Change(number, func(one *grant) {
		one.ended, one.returned = true, returned
		if returned {
			one.less = at
		}
		used = one.used
	})
	return used
}

// inHand is how many handlers run.
func (g *grants) inHand() int64 {
	return g.Sum(func(one grant) int64 {
		if one.ended {
			return 0
		}
		return 1
	})
}

// settledSince adds up the tokens of the starts after an instant.
func (g *grants) settledSince(instant time.Time) int64 {
	return g.Sum(func(one grant) int64 {
		if one.start.After(instant) && !one.returned {
			return one.settled
		}
		return 0
	})
}

// all returns copies of the grants so far, the earliest first.
func (g *grants) all() []grant { return g.InOrder(func(one grant) time.Time { return one.start }) }
