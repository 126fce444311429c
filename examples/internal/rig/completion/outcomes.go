package completion

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
)

// state is how far a prompt is.
type state int

const (
	waiting    state = iota // not ended: to arrive, in asynq, or being answered
	answered                // the provider has answered it
	overBudget              // its customer's budget has no room before its deadline
	gaveUp                  // the provider refused it for good, or no retries are left
)

// outcome is what became of one prompt.
type outcome struct {
	prompt  *prompt.Prompt
	state   state
	earlier bool      // it ended in an earlier run
	arrived time.Time // when it was enqueued, on Redis' clock; zero if not
	reason  string    // why it was given up
}

// outcomes keeps what became of each prompt.
type outcomes struct{ *account.Jobs[outcome] }

func newOutcomes(prompts []*prompt.Prompt) outcomes {
	of := make(map[string]outcome, len(prompts))
	for _, p := range prompts {
		of[p.ID] = outcome{prompt: p}
	}
	return outcomes{account.NewJobs(of)}
}

// arrived notes when a prompt was enqueued, the first time.
func (o outcomes) arrived(id string, at time.Time) {
	o.Note(id, func(one *outcome) {
		if one.arrived.IsZero() {
			one.arrived = at
		}
	})
}

// end notes how a prompt ended, in this run or an earlier one. Only the first end counts.
func (o outcomes) end(id string, how state, reason string, earlier bool) {
	o.End(id, func(one *outcome) { one.state, one.reason, one.earlier = how, reason, earlier })
}
