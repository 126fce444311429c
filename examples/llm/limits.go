package main

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/completion"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The scopes that count a job. A scope has one unit: a model that is limited in requests and
// in tokens has two scopes, with the same key.
const (
	scopeRequests = completion.ScopeRequests // "requests": requests to a model
	scopeTokens   = completion.ScopeTokens   // "tokens": tokens of a model
	scopeBudget   = completion.ScopeBudget   // "budget": tokens of a customer in a day
)

// margin is how long a request may take from its grant to the provider. The throttle counts a
// prompt when it is granted; the provider counts it when the request arrives, a varying time
// later. So two requests that are a window apart here may arrive closer together.
const margin = 200 * time.Millisecond

// floor is the part of a model's limits that stays, whatever the provider says.
const floor = 0.1

// scopes returns the throttle's scopes. For a model with 500 requests and 200,000 tokens a minute they would be, in Go,
//
//	quarter := time.Minute / 4
//	[]throttle.Scope{
//		{Name: "requests", Limits: []throttle.Limit{throttle.PerMinute(500), throttle.Per(166, quarter)},
//			Margin: margin, Floor: 0.1},
//		{Name: "tokens", Limits: []throttle.Limit{throttle.PerMinute(200_000), throttle.Per(66_666, quarter)},
//			Margin: margin, Floor: 0.1},
//		{Name: "budget", Limits: []throttle.Limit{throttle.PerDay(1_000_000)}},
//	}
func (o *options) scopes() []throttle.Scope {
	return []throttle.Scope{
		{Name: scopeRequests, Limits: o.paced(o.requests), Margin: margin, Floor: floor},
		{Name: scopeTokens, Limits: o.paced(o.tokens), Margin: margin, Floor: floor},
		{Name: scopeBudget, Limits: []throttle.Limit{throttle.PerDay(o.budget)}},
	}
}

// paced returns the limits for a provider's limit of some units: the limit itself, and a third
// of the units in a quarter of the window. With the first alone, a batch would use up a window
// in its first moments, and the next prompt would wait for the window's end.
func (o *options) paced(units int64) []throttle.Limit {
	return []throttle.Limit{throttle.Per(units, o.window),
		throttle.Per(most(units), (o.window / 4).Truncate(time.Microsecond))}
}

// most returns how many of a provider's units may start at once.
func most(units int64) int64 { return max(1, units/3) }

// lookahead returns how far ahead prompts are booked. Booked prompts start before a person's prompt that arrives now,
// so with short windows it is less than the throttle's default of a second.
func (o *options) lookahead() time.Duration {
	return min(time.Second, max(100*time.Millisecond, o.window/15))
}

// costs returns what a number of tokens costs. In the other scope, a job costs its weight,
// which is one request.
func costs(tokens int64) map[string]int64 {
	return map[string]int64{scopeTokens: tokens, scopeBudget: tokens}
}

// priority lets a person's prompts start before the same customer's batch, which keeps a tenth
// of what the customer starts.
func priority(p *prompt.Prompt) int {
	if p.Kind == prompt.Batch {
		return 1
	}
	return 0
}
