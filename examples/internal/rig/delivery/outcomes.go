package delivery

import (
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
)

// state is where a mail is on its way.
type state int

const (
	waiting   state = iota // not ended: to arrive, in asynq, or being sent
	delivered              // the server took it
	refused                // the server refused it for good
	gaveUp                 // it ended without the server's word: no retries left, or it can never fit its limits
)

// outcome is what became of one mail.
type outcome struct {
	state    state
	earlier  bool      // it ended in an earlier run
	arrived  time.Time // when it was enqueued, here or in an earlier run; zero if not
	deferred int       // how often the server wanted it later (4xx)
	held     int       // how often it wanted nothing for the whole domain
	retried  int       // asynq's retries that it has spent
	reason   string    // why it was last deferred, refused or given up
}

// outcomes keeps what became of each mail of a campaign. It is safe for
// concurrent use.
type outcomes struct {
	mu      sync.Mutex
	byMail  map[string]*outcome
	waiting int
	done    chan struct{} // closed when no mail is waiting
}

func newOutcomes(c *campaign.Campaign) *outcomes {
	o := &outcomes{byMail: make(map[string]*outcome), waiting: len(c.Mails), done: make(chan struct{})}
	for _, m := range c.Mails {
		o.byMail[m.ID] = &outcome{}
	}
	return o
}

// arrived notes when a mail was enqueued.
func (o *outcomes) arrived(id string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byMail[id].arrived = at
}

// deferred notes that the server wants the mail later.
func (o *outcomes) deferred(id, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byMail[id].deferred++
	o.byMail[id].reason = reason
}

// held notes that the server wants nothing for the mail's whole domain now.
func (o *outcomes) held(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byMail[id].held++
}

// tried notes an attempt, before which so many retries were spent.
func (o *outcomes) tried(id string, retried int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byMail[id].retried = max(o.byMail[id].retried, retried)
}

// end notes how a mail ended. Only the first end counts.
func (o *outcomes) end(id string, how state, reason string) { o.finish(id, how, reason, false) }

// endedEarlier notes how a mail ended in an earlier run.
func (o *outcomes) endedEarlier(id string, how state, reason string) { o.finish(id, how, reason, true) }

func (o *outcomes) finish(id string, how state, reason string, earlier bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.byMail[id]
	if one.state != waiting {
		return
	}
	one.state, one.earlier = how, earlier
	if reason != "" {
		one.reason = reason
	}
	if o.waiting--; o.waiting == 0 {
		close(o.done)
	}
}

// left is how many mails have not ended.
func (o *outcomes) left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

// all returns a copy of the outcomes by the mails' ids.
func (o *outcomes) all() map[string]outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]outcome, len(o.byMail))
	for id, one := range o.byMail {
		all[id] = *one
	}
	return all
}
