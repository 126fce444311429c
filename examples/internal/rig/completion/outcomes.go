package completion

import (
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
)

// state is where a prompt is on its way.
type state int

const (
	waiting    state = iota // not ended: to arrive, in asynq, or being answered
	answered                // the provider has answered it
	overBudget              // nobody waits until its customer's budget has room again
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

// outcomes keeps what became of each prompt. It is safe for concurrent use.
type outcomes struct {
	mu      sync.Mutex
	list    []*outcome
	byID    map[string]*outcome
	waiting int
	done    chan struct{} // closed when no prompt is waiting
}

func newOutcomes(prompts []*prompt.Prompt) *outcomes {
	o := &outcomes{byID: make(map[string]*outcome), waiting: len(prompts), done: make(chan struct{})}
	for _, p := range prompts {
		one := &outcome{prompt: p}
		o.list, o.byID[p.ID] = append(o.list, one), one
	}
	return o
}

// arrived notes when a prompt was enqueued, the first time.
func (o *outcomes) arrived(id string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if one := o.byID[id]; one.arrived.IsZero() {
		one.arrived = at
	}
}

// end notes how a prompt ended, in this run or an earlier one. Only the first end counts.
func (o *outcomes) end(id string, how state, reason string, earlier bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.byID[id]
	if one == nil || one.state != waiting {
		return
	}
	one.state, one.reason, one.earlier = how, reason, earlier
	if o.waiting--; o.waiting == 0 {
		close(o.done)
	}
}

// left is how many prompts have not ended.
func (o *outcomes) left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

// open are the prompts that have not ended.
func (o *outcomes) open() []*prompt.Prompt {
	o.mu.Lock()
	defer o.mu.Unlock()
	var open []*prompt.Prompt
	for _, one := range o.list {
		if one.state == waiting {
			open = append(open, one.prompt)
		}
	}
	return open
}

// all returns a copy of the outcomes, by the prompts' arrival.
func (o *outcomes) all() []outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]outcome, len(o.list))
	for i, one := range o.list {
		all[i] = *one
	}
	return all
}
