package delivery

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
)

// grant is one start that the throttle allowed, on Redis' clock.
type grant struct {
	start   time.Time
	decided time.Time // when the throttle allowed the start, at most maxWait before it
	mail    *campaign.Mail
	// returned: the server asked to wait instead of taking the mail. The charge was given
	// back, and the mail starts again.
	returned bool
}

// grants are the granted starts of a run.
type grants struct{ account.List[grant] }

// giveBack notes that a grant's charge was given back.
func (g *grants) giveBack(number int) { g.Change(number, func(one *grant) { one.returned = true }) }

// all returns copies of the grants so far, the earliest first: the used grants, and the grants
// that were given back.
func (g *grants) all() (used, returned []grant) {
	for _, one := range g.InOrder(func(one grant) time.Time { return one.start }) {
		if one.returned {
			returned = append(returned, one)
		} else {
			used = append(used, one)
		}
	}
	return used, returned
}

// started returns the mails that have started.
func (g *grants) started() map[*campaign.Mail]bool {
	started := make(map[*campaign.Mail]bool)
	for _, one := range g.All() {
		if !one.returned {
			started[one.mail] = true
		}
	}
	return started
}

// unitsSince adds up the units of the starts after an instant.
func (g *grants) unitsSince(instant time.Time) int64 {
	return g.Sum(func(one grant) int64 {
		if one.start.After(instant) && !one.returned {
			return one.mail.Units()
		}
		return 0
	})
}

// arrival is a receipt and the grant under which its mail was sent.
type arrival = account.Pair[grant, smtp.Receipt]

// arrivals pairs each receipt with its grant.
func arrivals(granted []grant, receipts []smtp.Receipt) []arrival {
	return account.Pairs(granted, receipts,
		func(g grant) (string, time.Time) { return g.mail.ID, g.start },
		func(r smtp.Receipt) (string, time.Time) { return r.Mail, r.At })
}
