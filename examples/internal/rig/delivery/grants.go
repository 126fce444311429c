package delivery

import (
	"slices"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
)

// grant is one start that the throttle allowed, on Redis' clock.
type grant struct {
	start   time.Time
	decided time.Time // when the throttle allowed it, up to maxWait before
	mail    *campaign.Mail
	// returned tells that the server asked to wait instead of taking the mail: the
	// charge was given back, and the mail starts anew.
	returned bool
}

// grants is all starts of a run, as the handler was told them. It is safe for
// concurrent use.
type grants struct {
	mu   sync.Mutex
	list []grant
}

// add notes a grant and returns its number, for giveBack.
func (g *grants) add(one grant) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, one)
	return len(g.list) - 1
}

// giveBack notes that a grant's charge was given back.
func (g *grants) giveBack(number int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list[number].returned = true
}

// all returns copies of the grants so far, the earliest first: those that were
// used, and those that were given back.
func (g *grants) all() (used, returned []grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range slices.SortedFunc(slices.Values(g.list), byStart) {
		if one.returned {
			returned = append(returned, one)
		} else {
			used = append(used, one)
		}
	}
	return used, returned
}

func byStart(a, b grant) int { return a.start.Compare(b.start) }

// started are the mails that have begun to go out.
func (g *grants) started() map[*campaign.Mail]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	started := make(map[*campaign.Mail]bool)
	for _, one := range g.list {
		if !one.returned {
			started[one.mail] = true
		}
	}
	return started
}

// unitsSince adds up the units of the starts after an instant.
func (g *grants) unitsSince(instant time.Time) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	var units int64
	for _, one := range g.list {
		if one.start.After(instant) && !one.returned {
			units += one.mail.Units()
		}
	}
	return units
}

// arrivals pairs each receipt with its grant: the latest of its mail before it, or
// with none before it (the clocks differ), the first. Of a mail that was never
// granted there is none.
func arrivals(granted []grant, receipts []smtp.Receipt) []arrival {
	grants := make(map[string][]grant)
	for _, g := range slices.SortedFunc(slices.Values(granted), byStart) {
		grants[g.mail.ID] = append(grants[g.mail.ID], g)
	}
	pairs := make([]arrival, 0, len(receipts))
	for _, r := range receipts {
		of := grants[r.Mail]
		if len(of) == 0 {
			continue
		}
		pair := arrival{of[0], r}
		for _, later := range of[1:] {
			if !later.start.After(r.At) {
				pair.grant = later
			}
		}
		pairs = append(pairs, pair)
	}
	return pairs
}

// arrival is a receipt and the grant under which its mail was sent.
type arrival struct {
	grant   grant
	receipt smtp.Receipt
}

// delays returns the longest time from a grant to its receipt, and the shortest.
// Both are 0 without receipts.
func delays(pairs []arrival) (longest, shortest time.Duration) {
	for i, pair := range pairs {
		delay := pair.receipt.At.Sub(pair.grant.start)
		if i == 0 {
			longest, shortest = delay, delay
		}
		longest, shortest = max(longest, delay), min(shortest, delay)
	}
	return longest, shortest
}
