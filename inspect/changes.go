package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	mostChanges    = 200
	changesKeptFor = 30 * 24 * time.Hour
)

// Change is one change of a setting at run time: a pause, limits or a mode. Redis keeps the last 200 changes
// for 30 days, and apart from these the last 200 that an upstream asked for (ForUpstream).
type Change struct {
	At time.Time `json:"at"` // on Redis' clock
	// By names the author: the person, if one was named, the user and the host, the program and
	// its process. Why is the reason, if one was given.
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
	// What is the kind of setting: pause, limits or mode.
	What string `json:"what"`
	// Scope and Key name the scope key. An empty Key of a keyed scope stands for all its keys,
	// an empty Scope for all scopes. Only the hash of a very long key is known.
	Scope string `json:"scope,omitempty"`
	Key   string `json:"key,omitempty"`
	// Before and After are texts: limits as ParseLimits reads them, a mode's name, or the end of
	// a pause (RFC 3339); empty if nothing was set.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Until is when the setting ends by itself; zero if it does not.
	Until time.Time `json:"until,omitzero"`
}

// Changes returns the changes made at run time, the last first. A setting that is set again as it was (Setting.IsAs)
// is no change. Changes blocks for two round trips and fails as Usage does.
func (t *Inspector) Changes(ctx context.Context) ([]Change, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	var changes []Change
	for _, upstream := range []bool{false, true} {
		list, err := t.list(ctx, t.changesKey(upstream), 0, mostChanges-1)
		if err != nil {
			return nil, err
		}
		for _, text := range list {
			var c Change
			if err := json.Unmarshal([]byte(text), &c); err == nil {
				changes = append(changes, c)
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return b.At.Compare(a.At) })
	return changes, nil
}

// changesKey names the list of the changes that people made, or of those that an upstream asked for.
func (t *Inspector) changesKey(upstream bool) string {
	if upstream {
		return t.prefix + "changes:upstream"
	}
	return t.prefix + "changes"
}

// noteChange records a change. A change that cannot be recorded is no error, since it is in force.
func (t *Inspector) noteChange(ctx context.Context, what, name string, was wire.WasSet, of terms) {
	if t.in.Clock() != nil {
		return
	}
	now := wire.Instant(was.Now)
	c := Change{At: now, By: t.who(of), Why: of.why, What: what, Scope: name}
	if scope, key, is := wire.SplitScopeKey(name); is {
		c.Scope, c.Key = scope, key
	}
	if what == wire.SetResume {
		c.What = wire.SetPause
	}
	before, after := t.wasSet(c.What, name, was.Before, now), t.wasSet(c.What, name, was.InForce, now)
	if before.IsAs(after) {
		return
	}
	c.Before, c.After, c.Until = before.text(), after.text(), after.Until
	text, err := json.Marshal(c)
	if err == nil {
		err = t.in.Push(ctx, t.changesKey(of.upstream), string(text), mostChanges, changesKeptFor)
	}
	if err != nil {
		t.options.Logger.Debug("throttle: who changed what could not be kept", zap.Error(err))
	}
}

// wasSet reads the setting before a change or after it; the zero Setting if nothing was set.
func (t *Inspector) wasSet(what, name, text string, now time.Time) Setting {
	s := wire.ReadWas(what, text)
	if s.Value == "" && !s.Until.After(now) {
		return Setting{}
	}
	s.Name = name
	return t.setting(s)
}

// text returns a setting as text for people, without its end; of a pause only the end.
func (s Setting) text() string {
	switch s.What {
	case wire.SetPause:
		return s.Until.UTC().Format(time.RFC3339)
	case wire.SetMode:
		return s.Mode
	}
	return limitsText(s.Limits)
}

// limitsOf reads limits in the scripts' form.
func (t *Inspector) limitsOf(scope, text string) (limits []throttle.Limit) {
	for _, l := range wire.SettingLimits(text) {
		limits = append(limits, t.in.Entered(scope, l))
	}
	return limits
}

// modeOf returns the mode of a letter.
func modeOf(letter string) throttle.Mode {
	return throttle.Mode(max(0, strings.Index(wire.Modes, letter)))
}

// actor names the user, the host and the program of this process, in a few hundred bytes at most.
func (t *Inspector) actor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = cmp.Or(u.Username, u.Uid)
	}
	p := t.in.Process()
	const most = 64 // bytes of each name
	return fmt.Sprintf("%.*s@%.*s (%.*s, process %d)", most, name, most, p.Host, most, p.Program, p.PID)
}

// limitsText writes limits as throttle.ParseLimits reads them.
func limitsText(limits []throttle.Limit) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	return strings.Join(texts, ", ")
}
