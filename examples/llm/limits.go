package main

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/completion"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The scopes that a job is counted over. A scope has one unit: what a model has limits of
// in requests and in tokens has two scopes, with the same key.
const (
	scopeRequests = completion.ScopeRequests // "requests", of a model
	scopeTokens   = completion.ScopeTokens   // "tokens", of a model
	scopeBudget   = completion.ScopeBudget   // "budget", tokens of a customer in a day
)

// margin is how long a request may take from its grant to the provider. The throttle counts a
// prompt when it is granted, the provider when the request has come, a little later and never as
// much: two that are a window apart here may be less there.
const margin = 200 * time.Millisecond

// floor is the part of a model's limits that stays, whatever the provider says.
const floor = 0.1

// scopes are the throttle's. For a model with 500 requests and 200,000 tokens a minute they
// would be in Go
//
//	quarter := time.Minute / 4
//	[]throttle.Scope{
//
// {Name: "requests", Limits: []throttle.Limit{throttle.PerMinute(500), throttle.Per(166, quarter)}, Margin:
// margin, Floor: 0.1},
// {Name: "tokens", Limits: []throttle.Limit{throttle.PerMinute(200_000), throttle.Per(66_666, quarter)}, Margin:
// margin, Floor: 0.1},
//
//		{Name: "budget", Limits: []throttle.Limit{throttle.PerDay(1_000_000)}},
//	}
func (o *options) scopes() []throttle.Scope {
	return []throttle.Scope{
		{Name: scopeRequests, Limits: o.paced(o.requests), Margin: margin, Floor: floor},
		{Name: scopeTokens, Limits: o.paced(o.tokens), Margin: margin, Floor: floor},
		{Name: scopeBudget, Limits: []throttle.Limit{throttle.PerDay(o.budget)}},
	}
}

// paced is the limits for a provider's limit of some units: that, and a third of them in a
// quarter of the time. With the first alone a batch would use up a window in its first
// moments, and whoever comes after that would wait for its end.
func (o *options) paced(units int64) []throttle.Limit {
	return []throttle.Limit{throttle.Per(units, o.window),
		throttle.Per(most(units), (o.window / 4).Truncate(time.Microsecond))}
}

// most is how many of a provider's units may start at once.
func most(units int64) int64 { return max(1, units/3) }

// lookahead is how far ahead prompts are booked. What is booked is ahead of a person's
// prompt that comes now: with short windows it is less than the throttle's second.
func (o *options) lookahead() time.Duration {
	return min(time.Second, max(100*time.Millisecond, o.window/15))
}

// costs is what so many tokens cost. Of the other scopes a job takes its weight, which is
// one request.
func costs(tokens int64) map[string]int64 {
	return map[string]int64{scopeTokens: tokens, scopeBudget: tokens}
}

// priority has prompts that a person waits for start before those of the same customer's
// batch, which have a tenth of what the customer starts even then.
func priority(p *prompt.Prompt) int {
	if p.Kind == prompt.Batch {
		return 1
	}
	return 0
}
