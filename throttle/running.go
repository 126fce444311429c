package throttle

import "context"

// One call ends or renews so many grants at most, and so many places that they may hold: one
// under each scope.
const (
	mostEnding = 64
	mostPlaces = 192
)

// endingAtOnce is how many grants one call ends or renews.
func (t *setup) endingAtOnce() int { return max(1, min(mostEnding, mostPlaces/len(t.scopes))) }

// Done tells that granted jobs have ended: what they hold of running limits is free at once,
// or after its cool-down, and the line is looked at for who is next. It tells for each
// whether the job held its places until now; false means that it was told before, or that the
// job's Lease was over: another may have started meanwhile, and nothing cools down. Grants
// without a Lease hold nothing, and are not asked for.
//
// It blocks for one round trip per 64 grants, of fewer with more than three scopes, and fails
// as Reserve does, without fallback; then it may be called again, and places that nobody gives
// back are free after their Lease.
// The error is also an *InvalidJobError for a reservation that is no grant. It is safe for
// many goroutines.
func (t *Throttle) Done(ctx context.Context, granted ...Reservation) ([]bool, error) {
	return t.running(ctx, false, granted)
}

// Renew has granted jobs count as running for a Lease from now on: call it about three times
// in a Lease while they run. It tells for each whether the job held its places until now. If
// not, since it came too late, what the job still held is given back: the job runs beside
// the limit, and had better end. It blocks and fails as Done does.
func (t *Throttle) Renew(ctx context.Context, granted ...Reservation) ([]bool, error) {
	return t.running(ctx, true, granted)
}

func (t *Throttle) running(ctx context.Context, renews bool, granted []Reservation) ([]bool, error) {
	g, err := t.grantsOf(ctx, renews, granted)
	for err == nil && len(g.asked) > 0 {
		err = t.tell(ctx, renews, g)
	}
	return g.held, err
}

// grants are some of which Redis is told that they have ended, or run on.
type grants struct {
	held   []bool
	atOnce int           // how many one call tells of
	asked  []Reservation // of which it is yet to be told
	places []int         // of these in held
}

// grantsOf checks grants, and answers for those that Redis does not know.
func (t *Throttle) grantsOf(ctx context.Context, renews bool, granted []Reservation) (*grants, error) {
	g := &grants{atOnce: t.endingAtOnce()}
	for _, r := range granted {
		if err := t.checkGrant(ctx, r); err != nil {
			return g, err
		}
	}
	g.held = make([]bool, len(granted))
	for i, r := range granted {
		switch {
		case r.Source == FallbackLocal && r.Lease > 0:
			g.held[i] = t.local.keep(r, renews)
		case r.Lease == 0 || r.Source != FallbackClosed:
			g.held[i] = true
		default:
			g.asked, g.places = append(g.asked, r), append(g.places, i)
		}
	}
	return g, nil
}

// next are as many as one call tells of.
func (g *grants) next() []Reservation { return g.asked[:min(len(g.asked), g.atOnce)] }

// answered takes whether the next ones held their places until now.
func (g *grants) answered(held []bool) {
	for i, is := range held {
		g.held[g.places[i]] = is
	}
	g.asked, g.places = g.asked[len(held):], g.places[len(held):]
}

// tell ends or renews the next ones.
func (t *Throttle) tell(ctx context.Context, renews bool, g *grants) error {
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
		t.means.ended(some, instant(held.Now))
	}
	g.answered(held.Done)
	return nil
}

// checkGrant tells whether a reservation is a grant that can be corrected or ended.
func (t *Throttle) checkGrant(ctx context.Context, r Reservation) error {
	switch at := r.Start.UnixMicro(); {
	case ctx == nil:
		return &InvalidJobError{Job: r.Job.ID, Field: "ctx", Value: nil, Reason: "is nil"}
	case r.Outcome != Granted:
		return &InvalidJobError{Job: r.Job.ID, Field: "Outcome", Value: r.Outcome, Reason: "is no grant"}
	case at < 1 || at > maxUnits:
		return &InvalidJobError{Job: r.Job.ID, Field: "Start", Value: r.Start, Reason: "is no start"}
	}
	if err := checkID(r.Job.ID); err != nil {
		return err
	}
	for scope, cooldown := range r.Cooldowns {
		if cooldown < 0 || cooldown > maxLease {
			return &InvalidJobError{Job: r.Job.ID, Field: "Cooldowns", Value: cooldown,
				Reason: "of scope " + scope + " is not between 0 and " + formatDuration(maxLease)}
		}
	}
	return nil
}

// takeBack refunds a grant under which nothing has run, and ends what it holds.
func (t *Throttle) takeBack(ctx context.Context, granted Reservation) (bool, error) {
	done, err := t.Refund(ctx, granted)
	if err != nil {
		return false, err
	}
	_, err = t.Done(ctx, granted)
	return done, err
}
