package throttle

import (
	"slices"
	"strconv"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// This file makes the requests to the scripts; answer.go reads the answers.

// order is a checked job with what it takes of each scope key.
type order struct {
	job     Job
	flow    string   // the encoded key of the fair scope, empty for none
	charges []charge // by the names of the scope keys
	lane    string
	advance int64 // units that the job asks for beside its own

	unchecked bool // a fallback has started it; the batcher's mutex guards this
}

// charged returns what the job takes of a scope key; nil if the scope key is not one of the job's.
func (o *order) charged(name string) *charge {
	for i := range o.charges {
		if o.charges[i].name == name {
			return &o.charges[i]
		}
	}
	return nil
}

// names returns the names of the job's scope keys.
func (o *order) names() []string {
	names := make([]string, len(o.charges))
	for i := range o.charges {
		names[i] = o.charges[i].name
	}
	return names
}

// units is what the job takes of a scope.
func (o *order) units(scope string) int64 {
	for i := range o.charges {
		if o.charges[i].scope.Name == scope {
			return o.charges[i].units
		}
	}
	return 0
}

// bounds are how long the lines of a job's scope keys may get; nil if none of them has a bound for the job.
func (o *order) bounds() []line.Length {
	if !o.job.Bounded || !slices.ContainsFunc(o.charges, func(c charge) bool { return c.scope.MaxWaiting != Length{} }) {
		return nil
	}
	bounds := make([]line.Length, len(o.charges))
	for i := range o.charges {
		bounds[i] = line.Length(o.charges[i].scope.MaxWaiting)
	}
	return bounds
}

// countedLimits are limits of the scope as the scripts count them, in the order of their spans.
func (s Scope) countedLimits(limits []Limit) []line.Limit {
	counted := make([]line.Limit, len(limits))
	for i, l := range limits {
		counted[i] = s.counted(l)
	}
	slices.SortFunc(counted, func(a, b line.Limit) int { return a.Compare(b.Span) })
	return counted
}

// arguments puts a script's own arguments after those of all scripts.
func (t *setup) arguments(own []string) []any {
	args := make([]any, 0, 3+len(own))
	args = append(args, t.nowArgument(), t.header[0], t.header[1])
	for _, text := range own {
		args = append(args, text)
	}
	return args
}

// nowArgument is empty in production: the script then reads Redis' clock.
func (t *setup) nowArgument() string {
	if t.now == nil {
		return ""
	}
	return strconv.FormatInt(t.now().UnixMicro(), 10)
}

// peeking is the asking of a call that decides nothing.
const peeking = 0

// reserveArguments ask for decisions. asking is a number that rises with each call of this throttle.
func (t *setup) reserveArguments(asking int64, orders ...*order) []any {
	jobs := make([]line.Job, len(orders))
	for i, o := range orders {
		latest := t.latest(o.job)
		jobs[i] = line.Job{ID: o.job.ID, Lane: o.lane, Costs: o.costs(), Plan: o.job.Plan,
			MaxWait: min(o.job.MaxWait.Microseconds(), max(0, latest)), Latest: latest, Share: t.shares.of(o.flow),
			Advance: o.advance, Bounds: o.bounds()}
	}
	return t.arguments(wire.Reserve{Asker: t.asker, Asking: asking, Jobs: jobs}.Arguments())
}

// costs are what the job takes of its scope keys, in the order of the lane.
func (o *order) costs() []int64 { return o.costsBy(func(c *charge) int64 { return c.units }) }

// costsBy returns, for each scope key, what by returns. A job without scope keys has one cost: its weight.
func (o *order) costsBy(by func(c *charge) int64) []int64 {
	if len(o.charges) == 0 {
		return []int64{o.job.Weight}
	}
	units := make([]int64, len(o.charges))
	for i := range o.charges {
		units[i] = by(&o.charges[i])
	}
	return units
}

// latest is how far away a job's deadline is, in microseconds: farther than any start if it has none, -1 if
// it has passed.
func (t *setup) latest(job Job) int64 {
	if job.Deadline.IsZero() {
		return maxUnits
	}
	if left := t.until(job.Deadline); left >= 0 {
		return left.Microseconds()
	}
	return -1
}

// until is how far away an instant is by the local clock, the only clock that the caller can have read.
func (t *setup) until(instant time.Time) time.Duration {
	if t.now == nil {
		return time.Until(instant)
	}
	return instant.Sub(t.now())
}

// pullArguments ask for a pull, before which the places of jobs that have ended are given back.
// A caller that does not deliver overdue jobs leaves them to other callers.
func (t *setup) pullArguments(bookings, looks int64, delivers bool, ended []Reservation) []any {
	return t.arguments(wire.Pull{Bookings: bookings, Looks: looks, Delivers: delivers, Timed: t.options.FairByTime,
		Ended: t.ended(ended)}.Arguments())
}

// runningArguments end grants, or renew them.
func (t *setup) runningArguments(renews bool, grants []Reservation) []any {
	return t.arguments(wire.Running{Renews: renews, Timed: t.options.FairByTime, Grants: t.ended(grants)}.Arguments())
}

// ended are grants with their cool-downs.
func (t *setup) ended(grants []Reservation) []wire.Ended {
	all := make([]wire.Ended, len(grants))
	for i := range grants {
		g := &grants[i]
		all[i] = wire.Ended{ID: g.Job.ID, Start: g.Start.UnixMicro(), Cooldowns: t.cooldowns(g)}
	}
	return all
}

// cooldowns returns how long a job's places stay occupied after its end, by scope, in microseconds.
func (t *setup) cooldowns(granted *Reservation) map[string]int64 {
	cooldowns := make(map[string]int64)
	for i := range t.scopes {
		cooldown := t.scopes[i].Cooldown
		if own, has := granted.Cooldowns[t.scopes[i].Name]; has {
			cooldown = own
		}
		if cooldown > 0 {
			cooldowns[t.scopes[i].Name] = cooldown.Microseconds()
		}
	}
	return cooldowns
}

// settleArguments correct what a job was charged at its start. With rebook, the units that are
// given back are booked again, a microsecond later.
func (t *setup) settleArguments(o *order, granted *Reservation, actual []int64, rebook bool) []any {
	return t.arguments(wire.Settle{
		Grant: line.Grant{ID: o.job.ID, Lane: o.lane, Costs: o.costs(), Start: granted.Start.UnixMicro(),
			Decided: granted.decided(), Waited: granted.Waited > 0},
		Actual: actual, Within: t.options.SettleWithin.Microseconds(), Share: t.shares.of(o.flow), Rebook: rebook,
	}.Arguments())
}

// reportArguments tell the script report what an upstream said.
func (t *setup) reportArguments(name string, of Scope, r Report) []any {
	said := wire.Report{Name: name, Report: line.Report{Refused: r.Refused, Floor: inThousandths(of.Floor),
		Wait: wire.Micros(min(r.RetryAfter, maxLease)), Margin: of.Margin.Microseconds()}}
	if !r.Started.IsZero() {
		said.Started = max(0, r.Started.UnixMicro())
	}
	for _, l := range r.Limits {
		units := min(l.Units, maxUnits)
		if units < 0 { // the upstream does not say
			units = maxUnits
		}
		said.Limits = append(said.Limits, line.ReportedLimit{Window: wire.Micros(min(l.Window, maxWindow+time.Microsecond)),
			Units: units, Remaining: min(l.Remaining, maxUnits)})
	}
	return t.arguments(said.Arguments())
}
