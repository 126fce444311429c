package throttle

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// mostAsked bounds how often a call is asked again because limits that were set at
// run time keep changing under it, or ledgers have to be adopted.
const mostAsked = 20

// controlsError is a script's word that other limits or modes are set than the call
// believed.
type controlsError struct{ text string }

func (e *controlsError) Error() string { return "throttle: what is set has changed" }

// ledgersError is a script's word that a scope key has ledgers of other windows or
// precisions than the call wants to count on.
type ledgersError struct {
	scope   int      // of the scope keys that have ledgers, from 1 on
	windows []string // that there are, in microseconds
}

func (e *ledgersError) Error() string { return "throttle: ledgers are to be adopted" }

// outdated reads these two from what Redis answered; nil if it is neither.
func outdated(text string) error {
	if _, set, is := strings.Cut(text, "THROTTLE_CONTROLS"); is {
		return &controlsError{strings.TrimPrefix(set, " ")}
	}
	if _, told, is := strings.Cut(text, "THROTTLE_LEDGERS "); is {
		fields := strings.Fields(told)
		if len(fields) > 0 {
			if scope, err := strconv.Atoi(fields[0]); err == nil {
				return &ledgersError{scope, fields[1:]}
			}
		}
	}
	return nil
}

// ask runs a script for a call. Where the script says that the call is out of date,
// it is brought up to date and asked again: that happens with the first call after
// limits were set, or after a configuration has changed.
func (t *Throttle) ask(ctx context.Context, s script, c *call, shape func() ([]string, []any)) (reply, error) {
	for range mostAsked {
		keys, args := shape()
		reply, err := t.redis.run(ctx, s, keys, args)
		if err := t.update(ctx, c, err); err != nil {
			return nil, err
		}
		if reply != nil {
			return reply, nil
		}
	}
	return nil, &UnavailableError{Failure: FailureOther, Err: fmt.Errorf("what is set has changed %d times meanwhile", mostAsked)}
}

// update brings a call up to date after an error that says that it is not; another
// error it returns.
func (t *Throttle) update(ctx context.Context, c *call, err error) error {
	var set *controlsError
	var ledgers *ledgersError
	switch {
	case errors.As(err, &set):
		if err := t.controls.learn(c.met, set.text); err != nil {
			return err
		}
		if err := t.rules(c); err != nil {
			return err
		}
		return c.fits()
	case errors.As(err, &ledgers):
		return t.adopt(ctx, c, ledgers)
	}
	return err
}

// confirm finds out whether a call is up to date, and brings it up to date.
func (t *Throttle) confirm(ctx context.Context, c *call) error {
	_, err := t.ask(ctx, controlsScript, c, func() ([]string, []any) {
		return []string{t.keys.control}, []any{t.nowArgument(), c.names, c.belief}
	})
	var never *NeverFitsError
	var blocked *BlockedError
	if errors.As(err, &never) || errors.As(err, &blocked) {
		return nil // as it was believed
	}
	return withJob(err, c.job)
}

// adopt has the ledgers of one scope key made such that the call can count on them.
func (t *Throttle) adopt(ctx context.Context, c *call, told *ledgersError) error {
	m := c.counted(told.scope)
	if m == nil {
		return badReply("ledgers", reply{int64(told.scope)})
	}
	for range mostAsked {
		keys, args := t.adoption(m, told.windows)
		_, err := t.redis.run(ctx, adoptScript, keys, args)
		if !errors.As(err, &told) {
			return err
		}
	}
	return &UnavailableError{Failure: FailureOther, Err: told}
}

// adoption are the keys and arguments of adopt.lua, windows those that there are.
func (t *Throttle) adoption(m *meets, windows []string) (keys []string, args []any) {
	keys = []string{t.keys.scope(m.scope.Name, m.encoded)}
	args = []any{t.nowArgument(), micros(t.options.Grace), strconv.Itoa(len(m.rulings))}
	known := make(map[string]bool)
	for _, r := range m.rulings {
		keys = append(keys, t.keys.ledger(m.scope.Name, m.encoded, r.limit.Window))
		args = append(args, r.text())
		known[micros(r.limit.Window)] = true
	}
	for _, window := range windows {
		if !known[window] {
			keys = append(keys, t.keys.ledgerOf(m.scope.Name, m.encoded, window))
			args = append(args, window)
			known[window] = true
		}
	}
	return keys, args
}

// counted is the n-th scope key of a call that has ledgers, from 1 on.
func (c *call) counted(n int) *meets {
	for i := range c.met {
		if len(c.met[i].rulings) > 0 {
			n--
		}
		if n == 0 {
			return &c.met[i]
		}
	}
	return nil
}
