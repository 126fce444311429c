package throttle

import (
	"fmt"
	"strings"
	"sync"
)

// mostBeliefs bounds what a process remembers of limits that were set for single
// keys. Forgetting one costs a round trip.
const mostBeliefs = 10_000

// controls is what this process believes to be set at run time: limits and modes,
// in the form in which read_controls.lua tells them. Every decision is checked
// against what is set in Redis by the script itself; a wrong belief costs a round
// trip, never a wrong decision.
type controls struct {
	mu      sync.RWMutex
	general map[string]string // by scope, for keys that have nothing of their own
	own     map[string]string // by scope:key
}

func newControls() *controls {
	return &controls{general: make(map[string]string), own: make(map[string]string)}
}

// believed is what is taken to be set for a scope key; empty for nothing.
func (c *controls) believed(scope, name string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if piece, known := c.own[name]; known {
		return piece
	}
	return c.general[scope]
}

// learn takes up what Redis said is set for the scope keys of a call.
func (c *controls) learn(met []meets, text string) error {
	pieces := make([]string, len(met))
	if text != "" {
		pieces = strings.Split(text, " ")
	}
	if len(pieces) != len(met) {
		return fmt.Errorf("throttle: the control key says %q of %d scope keys: %w", text, len(met), ErrState)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, piece := range pieces {
		if _, err := parseControl(piece); err != nil {
			return fmt.Errorf("%w: %w", ErrState, err)
		}
		name := met[i].name()
		delete(c.own, name)
		switch {
		case !strings.HasPrefix(piece, "k"):
			c.general[met[i].scope.Name] = piece
		case len(c.own) >= mostBeliefs:
			clear(c.own)
			fallthrough
		default:
			c.own[name] = piece
		}
	}
	return nil
}

// Origin tells where limits in force come from.
type Origin int

const (
	// FromConfiguration: from the scopes that New was given.
	FromConfiguration Origin = iota
	// FromScope: set at run time for all keys of the scope.
	FromScope
	// FromKey: set at run time for this key.
	FromKey
)

// String names the origin in lower case.
func (o Origin) String() string {
	switch o {
	case FromConfiguration:
		return "configuration"
	case FromScope:
		return "scope"
	case FromKey:
		return "key"
	}
	return "unknown"
}

// control is what is set for one scope key.
type control struct {
	origin Origin
	limits []Limit
	mode   Mode
	moded  bool // a mode is set
}

// parseControl reads one piece of a belief.
func parseControl(piece string) (control, error) {
	var c control
	text, letter, moded := strings.Cut(piece, "~")
	if moded {
		mode := strings.Index(modeLetters, letter)
		if len(letter) != 1 || mode < 0 {
			return c, fmt.Errorf("mode %q is none", letter)
		}
		c.mode, c.moded = Mode(mode), true
	}
	if text == "" {
		return c, nil
	}
	c.origin = FromScope
	if text[0] == 'k' {
		c.origin = FromKey
	}
	var err error
	c.limits, err = ParseLimits(text[1:])
	return c, err
}

// ruling is a limit in force on a scope key, or one that only counts.
type ruling struct {
	limit Limit
	how   string // the letters that read_calendar.lua knows
}

// free tells that a ruling holds nobody back.
func (r ruling) free() bool { return strings.ContainsAny(r.how, "ns") }

// The letters of a ruling.
const (
	howCounts = "n" // counts, and is not in force
	howShadow = "s"
	howTold   = "x" // in just this precision
)

// rule says which limits of a scope key are in force, by what is believed to be set.
// A limit of the configuration that another has replaced goes on counting, so that
// it tells the truth when it is in force again.
func (t *Throttle) rule(m *meets) error {
	c, err := parseControl(m.belief)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	m.origin, m.mode = c.origin, max(m.scope.Mode, t.options.Mode)
	if c.moded {
		m.mode = c.mode
	}
	m.inForce = m.scope.Limits
	if c.origin != FromConfiguration {
		m.inForce = c.limits
	}
	if m.mode == Off {
		return nil
	}
	how := ""
	if m.mode == Shadow {
		how = howShadow
	}
	if c.origin == FromConfiguration {
		for _, limit := range m.scope.Limits {
			m.count(limit, how)
		}
		return nil
	}
	for _, limit := range c.limits {
		m.count(limit, how+howTold)
	}
	for _, limit := range m.scope.Limits {
		if !m.counts(limit) {
			m.count(limit, howCounts)
		}
	}
	return nil
}

func (m *meets) count(limit Limit, how string) {
	if limit.Units != Unlimited {
		m.rulings = append(m.rulings, ruling{limit, how})
	}
}

// counts tells whether a ledger of the limit's window is counted already.
func (m *meets) counts(limit Limit) bool {
	for _, r := range m.rulings {
		if r.limit.Window == limit.Window {
			return true
		}
	}
	return false
}
