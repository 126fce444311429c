package completion

import (
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// What is counted, as it is printed.
const (
	unitRequests = "requests"
	unitTokens   = "tokens"
)

// checkWindows compares the throttle's limits with the record and with the grants.
func (s *Summary) checkWindows(r result) {
	late := r.spread()
	s.GrantToRequest = report.DelayOf(late, rig.MarginOf(r.scope(ScopeRequests)))
	for _, one := range []struct {
		unit, scope string
		over        *int
	}{
		{unitRequests, ScopeRequests, &s.WindowsOver},
		{unitTokens, ScopeTokens, &s.WindowsOver},
		{unitTokens, ScopeBudget, &s.DailyBudgetOver},
	} {
		scope := r.scope(one.scope)
		recorded := check.Charges(r.recorded(one.unit), scope, late)
		granted := check.Charges(r.started(one.unit), scope, 0)
		rows, over := report.Uses(one.unit, 1, recorded, granted)
		s.Limits, *one.over = append(s.Limits, rows...), *one.over+over
	}
}

// scope returns the scope with a name.
func (r result) scope(name string) []throttle.Scope {
	return slices.DeleteFunc(slices.Clone(r.scopes), func(s throttle.Scope) bool { return s.Name != name })
}

// spread returns how much closer together two requests may come to the provider than they were granted.
func (r result) spread() time.Duration {
	return account.Spread(account.Pairs(r.granted, r.requests,
		func(g grant) (string, time.Time) { return g.prompt.ID, g.start },
		func(one provider.Request) (string, time.Time) { return one.ID, one.At }))
}

// recorded returns the provider's record as charges. A refused request counts at its arrival
// and not later, so that a request that no limit allowed is found. A served request counts, by
// a provider's own record, the most that it may use until it is answered.
func (r result) recorded(unit string) []check.Charge {
	var charges []check.Charge
	for _, one := range r.requests {
		c := check.Charge{At: one.At.UnixMicro(), Units: unitsOf(unit, one.Tokens()), Of: keysOf(one)}
		switch {
		case one.Refused:
			c.Units, c.ThenAt = unitsOf(unit, one.Prompt+one.MaxTokens), c.At+1
		case r.ownSays:
			c.Units = unitsOf(unit, one.Prompt+one.MaxTokens)
			c.ThenAt, c.Then = microOf(one.End), unitsOf(unit, one.Tokens())
		}
		charges = append(charges, c)
	}
	return charges
}

// started returns the grants as charges. Each counts its estimate until it is settled or given
// back.
func (r result) started(unit string) []check.Charge {
	var charges []check.Charge
	for _, g := range r.granted {
		c := check.Charge{At: g.start.UnixMicro(), Units: unitsOf(unit, g.charged), Of: keys{r.model, g.prompt.Customer}}
		switch {
		case g.returned:
			c.ThenAt = microOf(g.less)
		case g.told:
			c.ThenAt, c.Then = microOf(g.less), unitsOf(unit, g.settled)
		}
		charges = append(charges, c)
	}
	return charges
}

// microOf returns an instant in microseconds since 1970, and 0 for the zero time.
func microOf(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

// unitsOf returns how many units a request of some tokens counts.
func unitsOf(unit string, tokens int64) int64 {
	if unit == unitRequests {
		return 1
	}
	return tokens
}
