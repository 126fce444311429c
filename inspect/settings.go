package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Setting is a pause, limits or a mode that is set at run time: for one scope key, for all keys of a scope,
// or, of modes, for all scopes. A Setting has its author, time, reason and end.
type Setting struct {
	// Scope and Key name the scope key. An empty Key of a keyed scope stands for all its keys, an
	// empty Scope for all scopes. Only the hash of a very long key is known; it begins with ~.
	Scope string `json:"scope,omitempty"`
	Key   string `json:"key,omitempty"`
	What  string `json:"what"` // pause, limits or mode
	// Limits are the limits that were set, Mode the mode's name.
	Limits []throttle.Limit `json:"limits,omitempty"`
	Mode   string           `json:"mode,omitempty"`
	// Until is when the setting ends by itself, on Redis' clock; zero if it does not. A pause
	// always ends.
	Until time.Time `json:"until,omitzero"`
	// At is when the setting was made, on Redis' clock, By its author, as in a Change, and Why the
	// reason, if one was given.
	At  time.Time `json:"at"`
	By  string    `json:"by"`
	Why string    `json:"why,omitempty"`
}

// IsAs reports whether another setting says the same: the same pause, limits or mode, with the same reason and end.
// Ends less than a second apart count as the same end: a setting ends by its distance from now, which is measured
// anew each time that it is set.
func (s Setting) IsAs(other Setting) bool {
	return s.What == other.What && s.Mode == other.Mode && limitsText(s.Limits) == limitsText(other.Limits) &&
		s.Why == other.Why && s.Until.Sub(other.Until).Abs() < time.Second
}

// Settings returns every setting made at run time: first the settings of all scopes and of whole scopes, then
// the settings of keys, by their names. It goes through every key that the throttle's server has, some ten
// thousand in one call, and reads the beginning of each scope key. It changes nothing and fails as Usage does;
// ctx bounds it.
func (t *Inspector) Settings(ctx context.Context) ([]Setting, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	control, err := t.value(ctx, wire.ControlKey(t.name))
	if err != nil {
		return nil, err
	}
	page, err := t.page(ctx, wire.LinesClaims, "") // for its instant
	if err != nil {
		return nil, err
	}
	settings := t.inForce(wire.ReadControl(control), wire.Instant(page.Now))
	names, err := t.scopeKeyNames(ctx, "")
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(names, 1000) {
		headers, err := t.headers(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, header := range headers {
			settings = append(settings, t.inForce(wire.ReadKeySettings(some[i], header), wire.Instant(page.Now))...)
		}
	}
	return settings, nil
}

// SettingsOf returns the settings made at run time for one scope key; with an empty key of a keyed scope, for
// all its keys; with an empty scope, for all scopes. It blocks for two or three round trips, one more for a scope key
// with long settings, and fails as Usage does.
func (t *Inspector) SettingsOf(ctx context.Context, scope, key string) ([]Setting, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if err := t.in.CheckScope(ctx, scope); scope != "" && err != nil {
		return nil, err
	}
	page, err := t.page(ctx, wire.LinesClaims, "") // for its instant
	if err != nil {
		return nil, err
	}
	var set []Setting
	if key == "" {
		control, err := t.value(ctx, wire.ControlKey(t.name))
		if err != nil {
			return nil, err
		}
		set = slices.DeleteFunc(t.inForce(wire.ReadControl(control), wire.Instant(page.Now)),
			func(s Setting) bool { return s.Scope != scope })
	}
	if key == "" && scope != throttle.Global {
		return set, nil
	}
	name := wire.ScopeKey(scope, key)
	headers, err := t.headers(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	for _, own := range t.inForce(wire.ReadKeySettings(name, headers[0]), wire.Instant(page.Now)) {
		own.Key = key
		set = slices.DeleteFunc(set, func(s Setting) bool { return s.What == own.What }) // in Global the key's wins
		set = append(set, own)
	}
	return set, nil
}

// scopeKeyNames lists the scope keys in Redis, of one scope or of all scopes.
func (t *Inspector) scopeKeyNames(ctx context.Context, scope string) ([]string, error) {
	prefix := t.prefix + "key:"
	if scope != "" {
		prefix = t.prefix + "key:" + scope + ":"
	}
	names, err := t.scanned(ctx, prefix)
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], t.prefix+"key:")
	}
	return names, err
}

// inForce returns the settings that have not ended.
func (t *Inspector) inForce(all []wire.Setting, now time.Time) (settings []Setting) {
	for _, s := range all {
		if !s.Holds(now) {
			continue
		}
		settings = append(settings, t.setting(s))
	}
	return settings
}

// setting converts a setting from the scripts' form.
func (t *Inspector) setting(s wire.Setting) Setting {
	of := Setting{Scope: s.Name, What: s.What, Until: s.Until, At: s.At, By: s.By, Why: s.Why}
	if scope, key, is := wire.SplitScopeKey(s.Name); is {
		of.Scope, of.Key = scope, key
	}
	switch s.What {
	case wire.SetMode:
		of.Mode = modeOf(s.Value).String()
	case wire.SetLimits:
		of.Limits = t.limitsOf(of.Scope, s.Value)
	}
	return of
}

// mostOfHeader is how many bytes of a scope key are read at first. Few have a longer first line.
const mostOfHeader = 512

// headers returns the first lines of scope keys.
func (t *Inspector) headers(ctx context.Context, names []string) ([]string, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = t.prefix + "key:" + name
	}
	texts, err := t.beginnings(ctx, keys, mostOfHeader)
	for i, text := range texts {
		line, _, whole := strings.Cut(text, "\n")
		if !whole && len(text) == mostOfHeader {
			if text, err = t.value(ctx, keys[i]); err != nil {
				return nil, err
			}
			line, _, _ = strings.Cut(text, "\n")
		}
		texts[i] = line
	}
	return texts, err
}

// mostUsages is how many scope keys one call is asked for. Its steps are enough for about as many.
const mostUsages = 200

// UsageAll returns the Usage of each key of a scope that Redis has, by their names; for Global, of its one key; with
// an empty scope, of all these in all scopes of the throttle. It goes through every key that the throttle's server
// has, some ten thousand in one call, and reads some 200 scope keys per call. It changes nothing and fails as Usage
// does; ctx bounds it.
func (t *Inspector) UsageAll(ctx context.Context, scope string) ([]Usage, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if err := t.in.CheckScope(ctx, scope); scope != "" && err != nil {
		return nil, err
	}
	names, err := t.usedKeys(ctx, scope)
	if err != nil {
		return nil, err
	}
	var all []Usage
	for some := range slices.Chunk(names, mostUsages) {
		accounts, err := t.usage(ctx, wire.Usage{Names: some})
		if err != nil {
			return nil, fmt.Errorf("throttle: the usage of the keys of %s cannot be read: %w", scopeOrAll(scope), err)
		}
		for i := range accounts {
			all = append(all, accounts[i].Usage)
		}
	}
	return all, nil
}

func scopeOrAll(scope string) string {
	if scope == "" {
		return "all scopes"
	}
	return "scope " + scope
}

// usedKeys returns the names of the scope keys of one scope or of all scopes of the throttle: of Global, and of the
// keys that Redis has. Redis may also have keys of scopes that were removed from the configuration.
func (t *Inspector) usedKeys(ctx context.Context, scope string) ([]string, error) {
	if scope == throttle.Global {
		return []string{wire.ScopeKey(scope, "")}, nil
	}
	names, err := t.scopeKeyNames(ctx, scope)
	if scope != "" || err != nil {
		return names, err
	}
	names = slices.DeleteFunc(append(names, wire.ScopeKey(throttle.Global, "")), func(name string) bool {
		of, _, _ := wire.SplitScopeKey(name)
		return !slices.ContainsFunc(t.scopes, func(s throttle.Scope) bool { return s.Name == of })
	})
	slices.Sort(names)
	return slices.Compact(names), nil
}
