package simulation_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// drawCosts draws costs for some jobs: in one or two scopes, such a job takes another number of units than its weight,
// or none. A prompt is an example: it takes one request and many tokens.
func (p *plan) drawCosts(d dice) {
	often := one(d, 0.1, 0.5, 1)
	names := []string{throttle.Global, "tenant", "domain"}
	for _, j := range p.jobs {
		if !d.chance(often) {
			continue
		}
		j.costs = map[string]int64{one(d, names...): one(d, 0, 1, 1, d.Int64N(5)+1, 3*j.weight)}
		if d.chance(0.2) {
			j.costs[one(d, names...)] = one(d, 0, 1, j.weight+1)
		}
		for i := range j.outcomes {
			if o := &j.outcomes[i]; o.does == settles && d.chance(0.5) {
				scope := one(d, names...)
				o.costs = map[string]int64{scope: d.Int64N(2*j.cost(scope) + 1)}
			}
		}
	}
}

// forgetCosts removes the costs in scopes that the world does not have.
func (p *plan) forgetCosts() {
	isAbsent := func(scope string, _ int64) bool {
		return !slices.ContainsFunc(p.scopes, func(s throttle.Scope) bool { return s.Name == scope })
	}
	for _, j := range p.jobs {
		maps.DeleteFunc(j.costs, isAbsent)
		for _, o := range j.outcomes {
			maps.DeleteFunc(o.costs, isAbsent)
		}
	}
}

// cost returns what a job must be charged in a scope; 0 if the scope does not concern the job.
func (j *job) cost(scope string) int64 {
	if scope == "domain" && j.domain == "" {
		return 0
	}
	if own, is := j.costs[scope]; is {
		return own
	}
	return j.weight
}

// actual returns the units that a job has taken in a scope, by its outcome.
func (j *job) actual(o outcome, scope string) int64 {
	_, own := j.costs[scope]
	if of, is := o.costs[scope]; is {
		return of
	}
	if o.does != settles || o.costs != nil || own {
		return j.cost(scope)
	}
	return o.units
}

// heaviest returns the largest cost that a job has in one of these scopes.
func (p *plan) heaviest(scopes ...string) (most int64) {
	for _, j := range p.jobs {
		for _, scope := range scopes {
			most = max(most, j.cost(scope))
		}
	}
	return most
}

// charges returns what a job must be charged, by the names of its scope keys.
func (p *plan) charges(j *job) map[string]int64 {
	charges := map[string]int64{}
	for _, scope := range p.scopes {
		if cost := j.cost(scope.Name); cost > 0 {
			charges[scope.Name+":"+j.key(scope.Name)] = cost
		}
	}
	return charges
}

// settle settles a job's charge for the units that the job has really taken.
func (o outcome) settle(ctx context.Context) error {
	if o.costs != nil {
		return worker.SettleCosts(ctx, o.costs)
	}
	return worker.Settle(ctx, o.units)
}

// costsText writes costs into a task's header.
func costsText(costs map[string]int64) string {
	var all []string
	for _, scope := range slices.Sorted(maps.Keys(costs)) {
		all = append(all, scope+"="+strconv.FormatInt(costs[scope], 10))
	}
	return strings.Join(all, ",")
}

// costsIn reads costs from a task's header.
func costsIn(text string) map[string]int64 {
	if text == "" {
		return nil
	}
	costs := map[string]int64{}
	for one := range strings.SplitSeq(text, ",") {
		scope, units, _ := strings.Cut(one, "=")
		costs[scope] = number(units)
	}
	return costs
}

// unitsOf reads the units of each scope key from a request or a correction. A single number holds for all scope keys.
func unitsOf(text string, names []string) []int64 {
	var units []int64
	for one := range strings.SplitSeq(text, ",") {
		units = append(units, number(one))
	}
	for len(units) < len(names) {
		units = append(units, units[0])
	}
	return units[:len(names)]
}

// sharedUnits returns the units under the limit that all jobs share.
func sharedUnits(names []string, units []int64) int64 {
	if i := slices.Index(names, throttle.Global+":"); i >= 0 {
		return units[i]
	}
	return 0
}

// under returns the units of a charge, by the names of its scope keys.
func (c *charge) under() map[string]int64 {
	units := map[string]int64{}
	for i, name := range c.names {
		units[name] = c.costs[i]
	}
	return units
}
