package throttle

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Usage is what one scope key has used and promised.
type Usage struct {
	// Scope and Key name it; Key is empty for Global.
	Scope, Key string
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Limits has an entry for each limit of the scope, in its order.
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

// Usage tells what a scope key has used and promised. The key of Global is "".
// It changes nothing. It blocks for one round trip and fails as Reserve does,
// without fallback.
func (t *Throttle) Usage(ctx context.Context, scope, key string) (Usage, error) {
	s, err := t.scopeKey(ctx, scope, key)
	if err != nil {
		return Usage{}, err
	}
	c := &call{}
	c.add(t.keys, meets{scope: s, key: key, encoded: encode(key)})
	if len(c.keys) == 0 {
		c.keys, c.limits = []string{}, []string{}
	}
	reply, err := t.redis.run(ctx, usageScript, c.keys, c.args(t.nowArgument(), micros(t.options.Grace)))
	if err != nil {
		return Usage{}, err
	}
	if len(reply) != 1+3*len(c.holds) || !reply.is(strings.Repeat("i", len(reply))) {
		return Usage{}, badReply("usage", reply)
	}
	usage := Usage{Scope: scope, Key: key, Now: time.UnixMicro(reply.integer(0))}
	rest := reply[1:]
	for _, limit := range s.Limits {
		if limit.Units == Unlimited {
			usage.Limits = append(usage.Limits, LimitUsage{Limit: limit, Free: usage.Now})
			continue
		}
		state := LimitUsage{Limit: limit, Used: rest.integer(0), Booked: rest.integer(1)}
		if free := rest.integer(2); free != 0 {
			state.Free = time.UnixMicro(free)
		}
		usage.Limits, rest = append(usage.Limits, state), rest[3:]
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
	s, err := t.scopeKey(ctx, scope, key)
	if err != nil {
		return 0, err
	}
	if to < 0 || from < to {
		return 0, &InvalidJobError{Field: "interval", Value: from - to, Reason: "does not begin before it ends, in the past"}
	}
	limit := s.finest(from)
	if limit == nil {
		return 0, &InvalidJobError{Field: "interval", Value: from, Reason: "reaches further back than every window of scope " + scope}
	}
	c := &call{}
	c.add(t.keys, meets{scope: &Scope{Name: scope, Limits: []Limit{*limit}}, key: key, encoded: encode(key)})
	reply, err := t.redis.run(ctx, countScript, c.keys, c.args(t.nowArgument(), micros(from), micros(to)))
	if err != nil {
		return 0, err
	}
	if !reply.is("ii") {
		return 0, badReply("count", reply)
	}
	return reply.integer(1), nil
}

// finest is the limit of the finest precision whose ledger reaches back so far.
func (s *Scope) finest(back time.Duration) *Limit {
	var finest *Limit
	for i := range s.Limits {
		limit := &s.Limits[i]
		if limit.Units == Unlimited || limit.Window < back {
			continue
		}
		if finest == nil || limit.precision() < finest.precision() {
			finest = limit
		}
	}
	return finest
}

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
