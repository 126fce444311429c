package throttle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Usage is what one scope key has used and promised.
type Usage struct {
	// Scope and Key name it; Key is empty for Global.
	Scope, Key string
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Limits has an entry for each limit in force, in order.
	Limits []LimitUsage
}

// LimitUsage is the state of one limit of a scope key.
type LimitUsage struct {
	// Limit is the limit.
	Limit Limit
	// Used is how many units started in the window that ends now, with those
	// granted for the near future. A sub-window counts until all of it has left.
	Used int64
	// Booked is how many units are promised to jobs that wait for their slot.
	Booked int64
	// Free is the earliest start for a job of weight 1 under this limit; zero if
	// there is none, since the limit is 0. For Unlimited it is Now.
	Free time.Time
}

// Usage tells what a scope key has used and promised under the limits that are in
// force on it. The key of Global is "". It changes nothing. It blocks for one round
// trip and fails as Reserve does, without fallback.
func (t *Throttle) Usage(ctx context.Context, scope, key string) (Usage, error) {
	c, err := t.callOn(ctx, scope, key)
	if err != nil {
		return Usage{}, err
	}
	reply, err := t.ask(ctx, usageScript, c, func() ([]string, []any) {
		return c.keysOn(), c.args(t.nowArgument(), c.names, c.belief, micros(t.options.Grace))
	})
	if err != nil {
		return Usage{}, err
	}
	if len(reply) != 1+3*len(c.holds) || !reply.is(strings.Repeat("i", len(reply))) {
		return Usage{}, badReply("usage", reply)
	}
	usage := Usage{Scope: scope, Key: key, Now: time.UnixMicro(reply.integer(0))}
	for _, limit := range c.met[0].inForce {
		i := c.ledgerOf(limit)
		if i < 0 {
			usage.Limits = append(usage.Limits, LimitUsage{Limit: limit, Free: usage.Now})
			continue
		}
		state := LimitUsage{Limit: limit, Used: reply.integer(1 + 3*i), Booked: reply.integer(2 + 3*i)}
		if free := reply.integer(3 + 3*i); free != 0 {
			state.Free = time.UnixMicro(free)
		}
		usage.Limits = append(usage.Limits, state)
	}
	return usage, nil
}

// Count returns how many units of a scope key started in the past interval that
// began from ago (included) and ended to ago (excluded): Count(…, time.Minute, 0)
// is the last minute. It may reach back as far as the scope's longest window. Of
// the ledgers that reach that far the one with the finest precision is read; a
// sub-window that overlaps the interval counts whole, so the answer errs by up to
// one precision at either end, on the high side. Blocks and fails as Usage does;
// an interval that no ledger covers is an *InvalidJobError.
func (t *Throttle) Count(ctx context.Context, scope, key string, from, to time.Duration) (int64, error) {
	c, err := t.callOn(ctx, scope, key)
	if err != nil {
		return 0, err
	}
	if to < 0 || from < to {
		return 0, &InvalidJobError{Field: "interval", Value: from - to, Reason: "does not begin before it ends, in the past"}
	}
	if c.finest(from) < 0 {
		// Limits may have been set since this process heard of them.
		if err := t.confirm(ctx, c); err != nil {
			return 0, err
		}
	}
	reply, err := t.ask(ctx, countScript, c, func() ([]string, []any) {
		finest := c.finest(from) + 1
		return c.keysOn(), c.args(t.nowArgument(), c.names, c.belief, micros(from), micros(to), finest)
	})
	switch {
	case c.finest(from) < 0:
		return 0, &InvalidJobError{Field: "interval", Value: from, Reason: "reaches further back than every window of scope " + scope}
	case err != nil:
		return 0, err
	case !reply.is("ii"):
		return 0, badReply("count", reply)
	}
	return reply.integer(1), nil
}

// finest is the place of the finest ledger that reaches back so far, negative if
// there is none.
func (c *call) finest(back time.Duration) int {
	finest, rulings := -1, c.met[0].rulings
	for i, r := range rulings {
		if r.limit.Window >= back && (finest < 0 || r.limit.precision() < rulings[finest].limit.precision()) {
			finest = i
		}
	}
	return finest
}

// ledgerOf is the place of a limit's ledger, negative if nothing is counted for it.
func (c *call) ledgerOf(limit Limit) int {
	return slices.IndexFunc(c.met[0].rulings, func(r ruling) bool { return r.limit == limit })
}

// callOn is a call about one scope key.
func (t *Throttle) callOn(ctx context.Context, scope, key string) (*call, error) {
	s, err := t.scopeKey(ctx, scope, key)
	if err != nil {
		return nil, err
	}
	c := t.callOnly(meets{scope: s, key: key, encoded: encode(key)})
	return c, t.rules(c)
}

// callOnly is the same without its rules, of a scope key that there is.
func (t *Throttle) callOnly(met meets) *call {
	c := &call{met: []meets{met}, keys: make([]string, lineKeys)}
	c.keys[lineKeys-1] = t.keys.control
	return c
}

// keysOn are the control key and those of the scope key.
func (c *call) keysOn() []string { return c.keys[lineKeys-1:] }

func (t *Throttle) scopeKey(ctx context.Context, name, key string) (*Scope, error) {
	if ctx == nil {
		return nil, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	for i := range t.scopes {
		s := &t.scopes[i]
		if s.Name != name {
			continue
		}
		if (key == "") != (name == Global) {
			return nil, &InvalidJobError{Field: "key", Value: name, Reason: fmt.Sprintf("%q is no key of this scope", key)}
		}
		return s, nil
	}
	return nil, &InvalidJobError{Field: "scope", Value: name, Reason: "is no scope of this throttle"}
}

func (t *Throttle) hasScope(name string) bool {
	return slices.ContainsFunc(t.scopes, func(s Scope) bool { return s.Name == name })
}
