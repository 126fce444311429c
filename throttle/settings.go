package throttle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Setting is what is set at run time for one scope key, for all keys of a scope, or, the
// mode, for all scopes.
type Setting struct {
	// Scope and Key name it. An empty Key of a keyed scope is all its keys, an empty Scope
	// all scopes. Of a very long key only the hash is known, which begins with ~.
	Scope string `json:"scope,omitempty"`
	Key   string `json:"key,omitempty"`
	// Paused is until when it is paused, on Redis' clock; zero if it is not.
	Paused time.Time `json:"paused,omitzero"`
	// Limits are those that were set, nil if none were.
	Limits []Limit `json:"limits,omitempty"`
	// Mode is the mode's name, empty if none was set.
	Mode string `json:"mode,omitempty"`
}

// Settings returns all that is set at run time: for all scopes and for whole scopes first,
// then for keys by their names. It looks at every key that the throttle's server has, some
// ten thousand a call, and at the beginning of each scope key. It changes nothing and fails
// as Usage does; ctx bounds it.
func (t *Throttle) Settings(ctx context.Context) ([]Setting, error) {
	if ctx == nil {
		return nil, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	control, err := t.redis.value(ctx, t.keys.control)
	if err != nil {
		return nil, err
	}
	settings := t.settingsOf(control)
	names, err := t.scopeKeyNames(ctx, "")
	if err != nil {
		return nil, err
	}
	page, err := t.page(ctx, "claims", "") // for its instant
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(names, 1000) {
		headers, err := t.headers(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, header := range headers {
			if s, is := t.settingOf(some[i], header, page.now); is {
				settings = append(settings, s)
			}
		}
	}
	return settings, nil
}

// SettingOf returns what is set at run time for one scope key, for all keys of a keyed scope
// where key is empty, or for all scopes where both are. It blocks for three round trips at
// most and fails as Usage does.
func (t *Throttle) SettingOf(ctx context.Context, scope, key string) (Setting, error) {
	if ctx == nil || scope != "" && !t.hasScope(scope) {
		return Setting{}, &InvalidJobError{Field: "scope", Value: scope, Reason: "is no scope of this throttle, or ctx is nil; there are: " + t.names(nil)}
	}
	control, err := t.redis.value(ctx, t.keys.control)
	if err != nil {
		return Setting{}, err
	}
	set := Setting{Scope: scope, Key: key}
	for _, s := range t.settingsOf(control) {
		if s.Scope == scope && key == "" {
			set = s
		}
	}
	if key == "" && scope != Global {
		return set, nil
	}
	u, err := t.Usage(ctx, scope, key) // for its instant
	if err != nil {
		return Setting{}, err
	}
	name := scopeKeyName(scope, key)
	headers, err := t.headers(ctx, []string{name})
	if err != nil {
		return Setting{}, err
	}
	if own, is := t.settingOf(name, headers[0], u.Now); is {
		set.Paused, set.Limits = own.Paused, own.Limits
	}
	return set, nil
}

// scopeKeyNames lists the scope keys that Redis has of a scope, or of all.
func (t *Throttle) scopeKeyNames(ctx context.Context, scope string) ([]string, error) {
	prefix := t.keys.prefix + "key:"
	if scope != "" {
		prefix = t.keys.prefix + "key:" + scope + ":"
	}
	names, err := t.redis.scanned(ctx, prefix)
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], t.keys.prefix+"key:")
	}
	return names, err
}

// settingsOf reads the control key: "-", or "mode;" and "scope=mode:limits;" for each.
func (t *Throttle) settingsOf(control string) []Setting {
	var settings []Setting
	all, rest, is := strings.Cut(control, ";")
	if is && all != "-" {
		settings = append(settings, Setting{Mode: modeOf(all).String()})
	}
	for part := range strings.SplitSeq(rest, ";") {
		scope, set, is := strings.Cut(part, "=")
		mode, limits, has := strings.Cut(set, ":")
		if !is || !has {
			continue
		}
		s := Setting{Scope: scope}
		if mode != "-" {
			s.Mode = modeOf(mode).String()
		}
		if limits != "-" {
			s.Limits = t.limitsOf(scope, limits)
		}
		settings = append(settings, s)
	}
	return settings
}

// mostOfHeader is how much is read of a scope key at first. What is set for few is longer.
const mostOfHeader = 128

// headers are the first lines of scope keys.
func (t *Throttle) headers(ctx context.Context, names []string) ([]string, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = t.keys.prefix + "key:" + name
	}
	texts, err := t.redis.beginnings(ctx, keys, mostOfHeader)
	for i, text := range texts {
		line, _, whole := strings.Cut(text, "\n")
		if !whole && len(text) == mostOfHeader {
			if text, err = t.redis.value(ctx, keys[i]); err != nil {
				return nil, err
			}
			line, _, _ = strings.Cut(text, "\n")
		}
		texts[i] = line
	}
	return texts, err
}

// settingOf reads a scope key's first line: "expire seen offset paused limits", and perhaps how
// it follows its upstream.
func (t *Throttle) settingOf(name, header string, now time.Time) (Setting, bool) {
	parts := strings.Split(header, " ")
	scope, key, is := splitName(name)
	if len(parts) < 5 || !is {
		return Setting{}, false // none, or foreign: whoever decides there is told
	}
	s := Setting{Scope: scope, Key: key}
	if end, err := pauseEnd(parts[3]); err == nil && end.After(now) {
		s.Paused = end
	}
	if parts[4] != "-" {
		s.Limits = t.limitsOf(scope, parts[4])
	}
	return s, !s.Paused.IsZero() || s.Limits != nil
}

// UsageAll returns how each key of a scope stands that Redis has, by their names; of Global
// its one. It looks at every key that the throttle's server has, some ten thousand a call,
// and asks for 500 scope keys in one. It changes nothing and fails as Usage does; ctx
// bounds it.
func (t *Throttle) UsageAll(ctx context.Context, scope string) ([]Usage, error) {
	if ctx == nil || !t.hasScope(scope) {
		return nil, &InvalidJobError{Field: "scope", Value: scope, Reason: "is no scope of this throttle, or ctx is nil; there are: " + t.names(nil)}
	}
	names, err := []string{scopeKeyName(Global, "")}, error(nil)
	if scope != Global {
		names, err = t.scopeKeyNames(ctx, scope)
	}
	if err != nil {
		return nil, err
	}
	var all []Usage
	for some := range slices.Chunk(names, mostOnPage) {
		accounts, err := t.usage(ctx, usageTotals, some...)
		if err != nil {
			return nil, fmt.Errorf("throttle: how the keys of scope %s stand: %w", scope, err)
		}
		for i := range accounts {
			all = append(all, accounts[i].Usage)
		}
	}
	return all, nil
}
