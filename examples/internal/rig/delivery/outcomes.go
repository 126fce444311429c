package delivery

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
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
	held     int       // how often the server wanted no mail for the whole domain
	retried  int       // asynq's retries that it has spent
	reason   string    // why it was last deferred, refused or given up
}

// outcomes keeps what became of each mail of a campaign.
type outcomes struct{ *account.Jobs[outcome] }

func newOutcomes(c *campaign.Campaign) outcomes {
	of := make(map[string]outcome, len(c.Mails))
	for _, m := range c.Mails {
		of[m.ID] = outcome{}
	}
	return outcomes{account.NewJobs(of)}
}

// arrived notes when a mail was enqueued.
func (o outcomes) arrived(id string, at time.Time) {
	o.Note(id, func(one *outcome) { one.arrived = at })
}

// deferred notes that the server wants the mail later.
func (o outcomes) deferred(id, reason string) {
	o.Note(id, func(one *outcome) {
		one.deferred++
		one.reason = reason
	})
}

// held notes that the server wants no mail for this mail's whole domain now.
func (o outcomes) held(id string) { o.Note(id, func(one *outcome) { one.held++ }) }

// tried notes an attempt, and how many retries were spent before it.
func (o outcomes) tried(id string, retried int) {
	o.Note(id, func(one *outcome) { one.retried = max(one.retried, retried) })
}

// end notes how a mail ended, in this run or an earlier one. Only the first end counts.
func (o outcomes) end(id string, how state, reason string, earlier bool) {
	o.End(id, func(one *outcome) {
		one.state, one.earlier = how, earlier
		if reason != "" {
			one.reason = reason
		}
	})
}
