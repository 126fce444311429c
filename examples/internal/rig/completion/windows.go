package completion

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
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
	s.GrantToRequestS = late.Seconds()
	requests := []throttle.Scope{{Name: ScopeRequests, Limits: rig.LimitsOf(r.scopes, ScopeRequests)}}
	tokens := []throttle.Scope{{Name: ScopeTokens, Limits: rig.LimitsOf(r.scopes, ScopeTokens)}}
	budget := []throttle.Scope{{Name: ScopeBudget, Limits: rig.LimitsOf(r.scopes, ScopeBudget)}}
	for _, one := range []struct {
		unit   string
		scopes []throttle.Scope
		over   *int
	}{{unitRequests, requests, &s.WindowsOver}, {unitTokens, tokens, &s.WindowsOver}, {unitTokens, budget, &s.DailyBudgetOver}} {
		recorded := check.Limits(r.recorded(one.unit), check.Law{Scopes: one.scopes}, late)
		granted := check.Limits(r.started(one.unit), check.Law{Scopes: one.scopes}, 0)
		for i := range recorded {
			s.Limits = append(s.Limits, report.LimitUse{
				Unit: one.unit, Scope: granted[i].Scope, Limit: granted[i].Limit.String(),
				Record: report.UseOf(recorded[i], 1), Grants: report.UseOf(granted[i], 1),
			})
		}
		*one.over += check.WindowsOver(recorded) + check.WindowsOver(granted)
	}
}

// spread is how much closer together two requests may come to the provider than they were
// granted: the difference of the longest and the shortest time in between.
func (r result) spread() time.Duration {
	longest, shortest := delays(r.granted, r.requests)
	return longest - min(0, shortest) // a shortest one below zero means that the clocks differ a little
}

// recorded is what was served as events.
func (r result) recorded(unit string) []check.Event {
	var events []check.Event
	for _, one := range r.answers() {
		events = append(events, check.Event{At: one.At.UnixMicro(), Units: unitsOf(unit, one.Tokens()), Of: keysOf(one)})
	}
	return events
}

// started is the grants that were used as events.
func (r result) started(unit string) []check.Event {
	var events []check.Event
	for _, g := range r.granted {
		if !g.returned {
			of := keys{r.model, g.prompt.Customer}
			events = append(events, check.Event{At: g.start.UnixMicro(), Units: unitsOf(unit, g.settled), Of: of})
		}
	}
	return events
}

// unitsOf is what a request of so many tokens counts.
func unitsOf(unit string, tokens int64) int64 {
	if unit == unitRequests {
		return 1
	}
	return tokens
}
