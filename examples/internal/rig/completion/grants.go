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
	told             bool      // it was settled to the use that the provider named
	less             time.Time // from then on the settled charge may count, or none; zero if never
	used             chat.Usage
	ended            bool
	returned         bool // the charge was given back: the provider asked to wait, or was not reached
}

// grants are the granted starts of a run.
type grants struct{ account.List[grant] }

// settle notes the use that a grant is settled to, the earliest time at which this charge may count, and whether
// settling succeeded.
func (g *grants) settle(number int, used chat.Usage, since time.Time, done bool) {
	g.Change(number, func(one *grant) {
		one.used, one.told, one.less = used, done, since
		if done {
			one.settled = used.TotalTokens
		}
	})
}

// end notes that the handler has returned, and whether the charge is given back. It returns
// the use, as far as it is known.
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

// running returns how many handlers run.
func (g *grants) running() int64 {
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
