package throttle

import (
	"context"
	"fmt"
	"slices"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Settle corrects the charge of a granted job to the units that it really took, 0 or more: in
// place, at the time of its start, in every limit at once. Units that were not taken are free
// at once. More units than the charge may overfill a window after the fact; then no job starts
// until the window is under its limit again, and booked jobs keep their slots as far as there
// is room then. For a job with Costs, Settle corrects the scopes that are charged its Weight; the
// charge of a scope with a cost of its own stays (SettleCosts).
//
// A grant is settled once. Settle returns false, and changes nothing, if the grant was settled
// before, if it started longer ago than Options.SettleWithin, or if Redis did not decide it. It
// also returns false if the answer of this very call was lost and the client repeated the call; then
// the charge has been corrected. Any process of the same configuration can settle a grant: Settle reads
// only the grant's Job, Outcome, Start, Now, Waited, Uncharged, Replayed, Advanced, Source and Cooldowns.
//
// Places of running limits stay occupied: Done gives them back. Windows that began to count after
// the job was granted, and scopes that were Off then, stay as they are: the job was not charged
// there.
//
// It blocks for one round trip and fails as Reserve does, without fallback; the error
// is also an *InvalidJobError for a reservation that is no grant.
func (t *Throttle) Settle(ctx context.Context, granted Reservation, actual int64) (bool, error) {
	if actual < 0 || actual > maxUnits {
		return false, &InvalidJobError{Job: granted.Job.ID, Field: "actual", Value: actual,
			Reason: fmt.Sprintf("is not between 0 and %d", maxUnits)}
	}
	return t.settle(ctx, granted, func(c *charge) int64 {
		if _, own := granted.Job.Costs[c.scope.Name]; own {
			return c.units
		}
		return actual
	}, false)
}

// SettleCosts is Settle with an actual cost for each scope, by its name. The charge of a scope that
// is not named stays; a scope that was not charged for the job stays uncharged.
func (t *Throttle) SettleCosts(ctx context.Context, granted Reservation, actual map[string]int64) (bool, error) {
	if err := t.checkCosts(granted.Job.ID, actual); err != nil {
		return false, err
	}
	return t.settle(ctx, granted, func(c *charge) int64 {
		if units, corrected := actual[c.scope.Name]; corrected {
			return units
		}
		return c.units
	}, false)
}

// Refund gives back the whole charge of a granted job that took nothing. Done gives back its places
// under running limits. Refund returns, blocks and fails as Settle does.
func (t *Throttle) Refund(ctx context.Context, granted Reservation) (bool, error) {
	return t.settle(ctx, granted, func(*charge) int64 { return 0 }, false)
}

// settle corrects each charge to what actual returns. With rebook, the units are booked again, for a
// microsecond after the start.
func (t *Throttle) settle(ctx context.Context, granted Reservation, actual func(c *charge) int64,
	rebook bool) (bool, error) {
	if err := t.checkGrant(ctx, granted); err != nil {
		return false, err
	}
	o, err := t.order(ctx, granted.Job)
	if err != nil || granted.Source != FallbackClosed || len(o.charges) == 0 {
		return false, err
	}
	corrected := func(c *charge) int64 {
		if slices.Contains(granted.Uncharged, c.scope.Name) {
			return c.units // the job was not charged there: a correction would change another job's units
		}
		return actual(c)
	}
	reply, err := t.redis.run(ctx, settleScript, t.settleArguments(o, &granted, o.costsBy(corrected), rebook))
	if err != nil {
		return false, withJob(err, granted.Job)
	}
	settled, err := t.done("settle", reply, 1)
	if err != nil || !settled.Done[0] {
		return false, err
	}
	if t.options.Observer != nil && !rebook {
		t.options.Observer.Settled(t.settlement(o, actual, granted.Uncharged))
	}
	return true, nil
}

// settlement describes the job's largest charge, before and after the correction.
func (t *Throttle) settlement(o *order, actual func(c *charge) int64, uncharged []string) Settlement {
	s := Settlement{Throttle: t.name, Job: o.job}
	for i := range o.charges {
		if c := &o.charges[i]; c.units > s.Charged && !slices.Contains(uncharged, c.scope.Name) {
			s.Charged, s.Actual = c.units, actual(c)
		}
	}
	return s
}

// checkGrant returns an error for a reservation that is no grant, which nothing can correct or end.
func (t *Throttle) checkGrant(ctx context.Context, r Reservation) error {
	switch at := r.Start.UnixMicro(); {
	case ctx == nil:
		return errNoContext
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
				Reason: "of scope " + scope + " is not between 0 and " + wire.Duration(maxLease)}
		}
	}
	return nil
}
