package throttle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SetLimits sets the limits of one scope key at run time, for all processes, from
// their next decision on; with an empty key of a keyed scope those of all its keys
// that have none of their own. They are kept in Redis until ResetLimits, and win over
// every configuration. What was spent goes on counting, as far back as the windows
// reach that were counted, also under other windows and precisions.
//
// Lowered, nothing starts until the window is under its limit, and a booked job may
// have to wait longer; raised, what is decided from then on uses it, and no booked job
// starts later for it. For that a limit without a Precision gets that of the configured
// limit of its window, except where this is finer than the default and there are more
// than 1,000 units, whose ledger would get long. From one Precision to another a booked
// job may start up to a Precision later. A limit of 0
// blocks, and Unlimited lifts it. A job that no longer fits waits: under 0 in line,
// under a limit below its weight with a *BlockedError until the limits change.
//
// It blocks for a few round trips where many lanes wait, and fails as Reserve does,
// without fallback; the error is also a *LimitError or an *OptionError.
func (t *Throttle) SetLimits(ctx context.Context, scope, key string, limits []Limit) error {
	if len(limits) == 0 {
		return &OptionError{Field: "limits", Value: 0, Reason: "are none; Unlimited lifts a limit, ResetLimits takes back what was set"}
	}
	if err := (Scope{Name: scope, Limits: limits}).validateLimits(); err != nil {
		return err
	}
	if counted := t.counting(scope, limits); counted > maxLimits {
		return &OptionError{Field: "limits", Value: len(limits), Reason: fmt.Sprintf("make %d with the windows of the configuration, more than %d", counted, maxLimits)}
	}
	texts := make([]string, len(limits))
	for i, limit := range limits {
		texts[i] = t.asConfigured(scope, limit).String()
	}
	return t.set(ctx, "%", scope, key, strings.Join(texts, ","))
}

// mostFiner is up to how many units a limit is kept in a finer precision than its default.
const mostFiner = 1000

// asConfigured gives a limit without a precision the configured one's. Another would round
// what was spent, and what was booked by it would come too early.
func (t *Throttle) asConfigured(scope string, limit Limit) Limit {
	if limit.Precision != 0 || limit.Units == Unlimited {
		return limit
	}
	for _, s := range t.scopes {
		for _, own := range s.Limits {
			if s.Name != scope || own.Window != limit.Window || own.Units == Unlimited {
				continue
			}
			if was, is := own.precision(), limit.precision(); was > is || was < is && limit.Units <= mostFiner {
				limit.Precision = was
			}
		}
	}
	return limit
}

// counting is how many limits a scope key counts where these are set: those of the
// configuration that have other windows go on counting.
func (t *Throttle) counting(scope string, limits []Limit) int {
	counted := len(limits)
	for _, s := range t.scopes {
		for _, own := range s.Limits {
			if s.Name == scope && !slices.ContainsFunc(limits, func(l Limit) bool { return l.Window == own.Window }) {
				counted++
			}
		}
	}
	return counted
}

// ResetLimits takes back what SetLimits set for a scope key, or with an empty key of
// a keyed scope for all its keys: what is set more generally, or else each process'
// configuration, is in force again. It blocks and fails as SetLimits does.
func (t *Throttle) ResetLimits(ctx context.Context, scope, key string) error {
	return t.set(ctx, "%", scope, key, "")
}

// SetMode sets the mode of a scope at run time, for all processes, from their next
// decision on; with an empty scope that of all scopes which have none set. It is kept
// in Redis until ResetMode, and wins over every configuration. It blocks and fails as
// SetLimits does.
func (t *Throttle) SetMode(ctx context.Context, scope string, mode Mode) error {
	if !mode.valid() {
		return &OptionError{Field: "mode", Value: int(mode), Reason: "is none of Enforce, Shadow, Off"}
	}
	return t.setMode(ctx, scope, mode.letter())
}

// ResetMode takes back what SetMode set. It blocks and fails as SetLimits does.
func (t *Throttle) ResetMode(ctx context.Context, scope string) error {
	return t.setMode(ctx, scope, "")
}

func (t *Throttle) setMode(ctx context.Context, scope, letter string) error {
	if scope == "" {
		return t.write(ctx, "~", letter, Global)
	}
	if !t.hasScope(scope) {
		return &InvalidJobError{Field: "scope", Value: scope, Reason: "is no scope of this throttle"}
	}
	return t.write(ctx, "~"+scope, letter, scope)
}

func (t *Throttle) set(ctx context.Context, kind, scope, key, text string) error {
	if key != "" || scope == Global {
		if _, err := t.scopeKey(ctx, scope, key); err != nil {
			return err
		}
	} else if !t.hasScope(scope) {
		return &InvalidJobError{Field: "scope", Value: scope, Reason: "is no scope of this throttle"}
	}
	if err := t.write(ctx, kind+scope+":"+encode(key), text, ""); err != nil {
		return err
	}
	return t.recall(ctx, scope, key)
}

// write sets a field of the control key and has the lanes of a scope looked at again.
func (t *Throttle) write(ctx context.Context, field, text, scope string) error {
	if ctx == nil {
		return &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	reply, err := t.redis.run(ctx, setScript, []string{t.keys.control}, []any{field, text})
	switch {
	case err != nil:
		return err
	case !reply.is("i"):
		return badReply("set", reply)
	case scope == "":
		return nil
	}
	return t.recall(ctx, scope, "")
}

// InForce is what holds for one scope key.
type InForce struct {
	Scope, Key string
	// Limits are those in force, Origin tells where they come from.
	Limits []Limit
	Origin Origin
	// Mode is the mode in force.
	Mode Mode
	// Paused is until when the scope key is paused, on Redis' clock; zero if it is
	// not.
	Paused time.Time
}

// Limits tells what holds for a scope key, and where it comes from. The key of Global
// is "". It blocks and fails as Usage does.
func (t *Throttle) Limits(ctx context.Context, scope, key string) (InForce, error) {
	c, err := t.callOn(ctx, scope, key)
	if err != nil {
		return InForce{}, err
	}
	reply, err := t.ask(ctx, controlsScript, c, func() ([]string, []any) {
		return []string{t.keys.control}, []any{t.nowArgument(), "+" + c.met[0].name(), c.belief}
	})
	switch {
	case err != nil:
		return InForce{}, err
	case !reply.is("iii"):
		return InForce{}, badReply("controls", reply)
	}
	m := &c.met[0]
	state := InForce{Scope: scope, Key: key, Limits: append([]Limit(nil), m.inForce...), Origin: m.origin, Mode: m.mode}
	if opens := reply.integer(1); opens > reply.integer(0) {
		state.Paused = time.UnixMicro(opens)
	}
	return state, nil
}
