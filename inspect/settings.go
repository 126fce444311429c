package inspect

import (
	"context"
	"fmt"
	"net/url"
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

// Settings returns every setting made at run time: first those of all scopes and of whole scopes, then those of
// keys, by their names. It goes through every key that the throttle's server has, some ten thousand in one
// call, and reads the beginning of each scope key. It changes nothing and fails as Usage does; ctx bounds
// it.
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
	settings := t.settingsOf(control, wire.Instant(page.Now))
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
			settings = append(settings, t.settingsOfKey(some[i], header, wire.Instant(page.Now))...)
		}
	}
	return settings, nil
}

// SettingsOf returns the settings made at run time for one scope key; with an empty key of a keyed scope, for
// all its keys; with an empty scope, for all scopes. It blocks for at most three round trips and fails as Usage
// does.
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
		set = slices.DeleteFunc(t.settingsOf(control, wire.Instant(page.Now)),
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
	for _, own := range t.settingsOfKey(name, headers[0], wire.Instant(page.Now)) {
		own.Key = key
		set = slices.DeleteFunc(set, func(s Setting) bool { return s.What == own.What }) // of Global the key's win
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

// settingsOf reads the settings in force from the control key: "-", or "mode;" and "scope=mode:limits;" for each
// scope.
func (t *Inspector) settingsOf(control string, now time.Time) []Setting {
	var settings []Setting
	keep := func(s Setting, text string) {
		value, rest, is := strings.Cut(text, "|")
		if !is || !s.noted(rest) || !s.Until.IsZero() && !s.Until.After(now) {
			return
		}
		if s.What == "mode" {
			s.Mode = modeOf(value).String()
		} else {
			s.Limits = t.limitsOf(s.Scope, value)
		}
		settings = append(settings, s)
	}
	all, rest, _ := strings.Cut(control, ";")
	keep(Setting{What: "mode"}, all)
	for part := range strings.SplitSeq(rest, ";") {
		scope, set, _ := strings.Cut(part, "=")
		mode, limits, _ := strings.Cut(set, ":")
		keep(Setting{Scope: scope, What: "limits"}, limits)
		keep(Setting{Scope: scope, What: "mode"}, mode)
	}
	return settings
}

// noted reads "until|at|by|why", or for a pause "at|by|why".
func (s *Setting) noted(text string) bool {
	parts := strings.Split(text, "|")
	if s.What != "pause" && len(parts) == 4 {
		s.Until, parts = endOf(parts[0]), parts[1:]
	}
	if len(parts) != 3 {
		return false
	}
	var badBy, badWhy error
	s.At = endOf(parts[0])
	s.By, badBy = url.QueryUnescape(parts[1])
	s.Why, badWhy = url.QueryUnescape(parts[2])
	return badBy == nil && badWhy == nil
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

// settingsOfKey reads the settings in force from a scope key's first line: "expire seen offset pause limits", and
// the served share if it has one.
func (t *Inspector) settingsOfKey(name, header string, now time.Time) []Setting {
	parts := strings.Split(header, " ")
	scope, key, is := wire.SplitScopeKey(name)
	if len(parts) < 5 || !is {
		return nil // empty, or foreign data, which the next decision there reports
	}
	var settings []Setting
	pause := Setting{Scope: scope, Key: key, What: "pause"}
	if end, rest, _ := strings.Cut(parts[3], "|"); pause.noted(rest) {
		if pause.Until = endOf(end); pause.Until.After(now) {
			settings = append(settings, pause)
		}
	}
	limits := Setting{Scope: scope, Key: key, What: "limits"}
	if value, rest, _ := strings.Cut(parts[4], "|"); limits.noted(rest) &&
		(limits.Until.IsZero() || limits.Until.After(now)) {
		limits.Limits = t.limitsOf(scope, value)
		settings = append(settings, limits)
	}
	return settings
}

// UsageAll returns the Usage of each key of a scope that Redis has, by their names; for Global, of its one key. It
// goes through every key that the throttle's server has, some ten thousand in one call, and reads 500
// scope keys in one. It changes nothing and fails as Usage does; ctx bounds it.
func (t *Inspector) UsageAll(ctx context.Context, scope string) ([]Usage, error) {
	if err := t.in.CheckScope(ctx, scope); err != nil {
		return nil, err
	}
	names, err := []string{wire.ScopeKey(throttle.Global, "")}, error(nil)
	if scope != throttle.Global {
		names, err = t.scopeKeyNames(ctx, scope)
	}
	if err != nil {
		return nil, err
	}
	var all []Usage
	for some := range slices.Chunk(names, mostOnPage) {
		accounts, err := t.usage(ctx, wire.Usage{Names: some})
		if err != nil {
			return nil, fmt.Errorf("throttle: how the keys of scope %s stand: %w", scope, err)
		}
		for i := range accounts {
			all = append(all, accounts[i].Usage)
		}
	}
	return all, nil
}
