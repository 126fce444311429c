package throttle

import (
	"context"
	"fmt"
	"strings"
)

// Settle corrects what a granted job was charged to what it really took, 0 or more
// units: in place, at the time of its start, in every limit at once. Less frees
// capacity for others at once. More may overfill a window after the fact; then
// nobody starts until the window is under its limit again, and jobs that are booked
// keep their slots as far as there is room then.
//
// A grant is settled once: it returns false where that was done before, where the
// job has been granted anew since, where it is longer ago than Options.SettleWithin,
// where other scopes are counted than when it was granted (SetMode), and where Redis
// did not decide. The charge is then what it was. It also returns false where the
// answer of this very call was lost and the client made it again; the charge is then
// corrected. Blocks and fails as Reserve does, without fallback; the error is also an
// *InvalidJobError for a reservation that is no grant.
func (t *Throttle) Settle(ctx context.Context, granted Reservation, actual int64) (bool, error) {
	if actual < 0 || actual > MaxUnits {
		return false, &InvalidJobError{Job: granted.Job.ID, Field: "actual", Value: actual, Reason: fmt.Sprintf("is not between 0 and %d", MaxUnits)}
	}
	if granted.Outcome != Granted || granted.Job.Nonce == "" {
		return false, &InvalidJobError{Job: granted.Job.ID, Field: "Outcome", Value: granted.Outcome, Reason: "is no grant"}
	}
	c, err := t.callFor(ctx, granted.Job)
	if err != nil || granted.Source != FromRedis {
		return false, err
	}
	if err := granted.chargedAs(); err != nil {
		return false, err
	}
	job := integers(granted.Start.UnixMicro(), granted.Job.Weight, actual, t.options.Grace.Microseconds(),
		t.kept.Milliseconds(), t.options.SettleWithin.Microseconds(), t.shares.of(c.lane.fairKey()))
	reply, err := t.ask(ctx, settleScript, c, func() ([]string, []any) {
		return c.keys, c.args(t.nowArgument(), c.names, c.belief, granted.Job.Nonce, c.scopeKeys()+" "+granted.Ledgers, job,
			string(c.lane), granted.Job.ID)
	})
	switch {
	case err != nil:
		return false, withJob(err, granted.Job)
	case !reply.is("ii"):
		return false, badReply("settle", reply)
	}
	done := reply.integer(0) == 1
	if done && t.options.Observer != nil {
		t.options.Observer.Settled(Settlement{Throttle: t.name, Job: granted.Job, Charged: granted.Job.Weight, Actual: actual})
	}
	return done, nil
}

// chargedAs refuses a reservation that does not tell where and when it was charged,
// as one that was put together by hand.
func (r Reservation) chargedAs() error {
	scopes, windows, whole := strings.Cut(r.Ledgers, ".")
	if !whole || scopes == "" || windows == "" || !alphanumeric(scopes+windows) {
		return &InvalidJobError{Job: r.Job.ID, Field: "Ledgers", Value: r.Ledgers, Reason: "names no ledgers"}
	}
	if at := r.Start.UnixMicro(); at < 1 || at > MaxUnits {
		return &InvalidJobError{Job: r.Job.ID, Field: "Start", Value: r.Start, Reason: "is no start"}
	}
	return nil
}

func alphanumeric(text string) bool {
	for i := range len(text) {
		if c := text[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}

// Refund takes back all that a granted job was charged, since it took nothing: it
// is Settle with 0 units.
func (t *Throttle) Refund(ctx context.Context, granted Reservation) (bool, error) {
	return t.Settle(ctx, granted, 0)
}
