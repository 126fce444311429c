package throttle

import (
	"context"
	"slices"
)

// mostEnding is how many grants one call ends or renews.
const mostEnding = 64

// Done tells that granted jobs have ended: what they hold of running limits is free at once,
// or after its cool-down, and the line is looked at for who is next. It tells for each
// whether the job held its places until now; false means that it was told before, or that the
// job's Lease was over: another may have started meanwhile, and nothing cools down. Grants
// without a Lease hold nothing, and are not asked for.
//
// It blocks for one round trip per 64 grants and fails as Reserve does, without fallback;
// then it may be called again, and places that nobody gives back are free after their Lease.
// The error is also an *InvalidJobError for a reservation that is no grant. It is safe for
// many goroutines.
func (t *Throttle) Done(ctx context.Context, granted ...Reservation) ([]bool, error) {
	return t.running(ctx, runningDone, granted)
}

// Renew has granted jobs count as running for a Lease from now on: call it about three times
// in a Lease while they run. It tells for each whether the job held its places until now. If
// not, since it came too late, what the job still held is given back: the job runs beside
// the limit, and had better end. It blocks and fails as Done does.
func (t *Throttle) Renew(ctx context.Context, granted ...Reservation) ([]bool, error) {
	return t.running(ctx, runningRenew, granted)
}

func (t *Throttle) running(ctx context.Context, verb string, granted []Reservation) ([]bool, error) {
	if t.looks {
		return nil, t.refused("Done and Renew")
	}
	held := make([]bool, len(granted))
	var asked []Reservation
	var places []int // of those asked for
	for i, r := range granted {
		if err := t.checkGrant(ctx, r); err != nil {
			return nil, err
		}
		switch {
		case r.Source == FallbackLocal && r.Lease > 0:
			held[i] = t.local.keep(r, verb == runningRenew)
		case r.Lease == 0 || r.Source != FallbackClosed:
			held[i] = true
		default:
			asked, places = append(asked, r), append(places, i)
		}
	}
	for some := range slices.Chunk(asked, mostEnding) {
		reply, err := t.redis.run(ctx, runningScript, t.runningArguments(verb, some))
		if err != nil {
			return held, err
		}
		done, now, err := t.doneAt("running", reply, len(some))
		if err != nil {
			return held, err
		}
		if verb == runningDone {
			t.means.ended(some, now)
		}
		for _, is := range done {
			held[places[0]], places = is, places[1:]
		}
	}
	return held, nil
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
	for scope, cooldown := range r.Cooldowns {
		if cooldown < 0 || cooldown > maxLease {
			return &InvalidJobError{Job: r.Job.ID, Field: "Cooldowns", Value: cooldown, Reason: "of scope " + scope + " is not between 0 and " + formatDuration(maxLease)}
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
