package throttle

import (
	"context"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// One call ends or renews at most mostEnding grants and mostPlaces places: a grant may occupy
// places under each scope.
const (
	mostEnding = 64
	mostPlaces = 192
)

// endingAtOnce is how many grants one call ends or renews.
func (t *setup) endingAtOnce() int { return max(1, min(mostEnding, mostPlaces/len(t.scopes))) }

// Done says that granted jobs have ended: the places that they occupy are free at once, or after
// their cool-down, and go to the next jobs in line. It returns for each job whether it occupied
// its places until now. False means that Done was called before, or that the job's Lease was
// over: other jobs may have started meanwhile, and there is no cool-down. Grants without a Lease
// occupy no places; Redis is not asked about them.
//
// It blocks for one round trip per 64 grants, or fewer grants with more than three scopes, and
// fails as Reserve does, without fallback; then it may be called again. Places that are never
// given back are free after their Lease.
// The error is also an *InvalidJobError for a reservation that is no grant. It is safe for
// many goroutines.
func (t *Throttle) Done(ctx context.Context, granted ...Reservation) ([]bool, error) {
	return t.running(ctx, false, granted)
}

// Renew lets granted jobs count as running for another Lease from now on: call it about three
// times in a Lease while they run. It returns for each job whether it occupied its places until
// now. If not, the call came too late, and the places that it still had are given back: the job
// runs beside the limit and should end. Renew blocks and fails as Done does.
func (t *Throttle) Renew(ctx context.Context, granted ...Reservation) ([]bool, error) {
	return t.running(ctx, true, granted)
}

func (t *Throttle) running(ctx context.Context, renews bool, granted []Reservation) ([]bool, error) {
	g, err := t.grantsOf(ctx, renews, granted)
	for err == nil && len(g.asked) > 0 {
		err = t.send(ctx, renews, g)
	}
	return g.occupied, err
}

// grants are the grants of one call of Done or Renew, and the answers so far.
type grants struct {
	occupied []bool        // whether each grant occupied its places until now
	atOnce   int           // how many grants one call ends or renews
	asked    []Reservation // grants about which Redis has yet to be asked
	indexes  []int         // those of asked, in occupied
}

// grantsOf checks grants, and answers for the grants that Redis does not know.
func (t *Throttle) grantsOf(ctx context.Context, renews bool, granted []Reservation) (*grants, error) {
	g := &grants{atOnce: t.endingAtOnce()}
	for _, r := range granted {
		if err := t.checkGrant(ctx, r); err != nil {
			return g, err
		}
	}
	g.occupied = make([]bool, len(granted))
	for i, r := range granted {
		switch {
		case r.Source == FallbackLocal && r.Lease > 0:
			g.occupied[i] = t.local.keep(r, renews)
		case r.Lease == 0 || r.Source != FallbackClosed:
			g.occupied[i] = true
		default:
			g.asked, g.indexes = append(g.asked, r), append(g.indexes, i)
		}
	}
	return g, nil
}

// next are the grants of the next call.
func (g *grants) next() []Reservation { return g.asked[:min(len(g.asked), g.atOnce)] }

// answered notes for the grants of a call whether they occupied their places until now.
func (g *grants) answered(held []bool) {
	for i, is := range held {
		g.occupied[g.indexes[i]] = is
	}
	g.asked, g.indexes = g.asked[len(held):], g.indexes[len(held):]
}

// send ends or renews the grants of the next call.
func (t *Throttle) send(ctx context.Context, renews bool, g *grants) error {
	some := g.next()
	reply, err := t.redis.run(ctx, runningScript, t.runningArguments(renews, some))
	if err != nil {
		return err
	}
	held, err := t.done("running", reply, len(some))
	if err != nil {
		return err
	}
	if !renews {
		t.means.ended(some, wire.Instant(held.Now))
	}
	g.answered(held.Done)
	return nil
}

// takeBack refunds a grant under which no job has run, and gives its places back.
func (t *Throttle) takeBack(ctx context.Context, granted Reservation) (bool, error) {
	done, err := t.Refund(ctx, granted)
	if err != nil {
		return false, err
	}
	_, err = t.Done(ctx, granted)
	return done, err
}
