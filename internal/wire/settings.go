package wire

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// Setting is a setting made at run time, as the scripts keep it.
type Setting struct {
	What string // SetPause, SetLimits or SetMode
	// Name is the name of a scope key or of a scope; empty in a mode of all scopes.
	Name string
	// Value is limits or a mode's letter. A pause has none.
	Value string
	Until time.Time // when the setting ends by itself; zero if it does not
	At    time.Time // when the setting was made
	By    string
	Why   string
}

// Holds reports whether the setting has not ended.
func (s Setting) Holds(now time.Time) bool { return s.Until.IsZero() || s.Until.After(now) }

// Note returns the author and the reason of a setting, encoded so that they contain no separators.
func Note(by, why string) string { return url.QueryEscape(by) + "|" + url.QueryEscape(why) }

// readSetting reads "value|until|at|by|why" or, of a pause, "until|at|by|why"; false if nothing is set.
func readSetting(what, name, text string) (s Setting, is bool) {
	s.What, s.Name = what, name
	if what != SetPause {
		s.Value, text, _ = strings.Cut(text, "|")
	}
	parts := strings.Split(text, "|")
	if len(parts) != 4 {
		return s, false
	}
	var badBy, badWhy error
	s.Until, s.At = instantOf(parts[0]), instantOf(parts[1])
	s.By, badBy = url.QueryUnescape(parts[2])
	s.Why, badWhy = url.QueryUnescape(parts[3])
	return s, badBy == nil && badWhy == nil
}

// ReadControl reads the settings in the control key: "-", or "mode;" and "scope=mode:limits;" for each scope.
func ReadControl(text string) (all []Setting) {
	add := func(what, name, text string) {
		if s, is := readSetting(what, name, text); is {
			all = append(all, s)
		}
	}
	mode, rest, _ := strings.Cut(text, ";")
	add(SetMode, "", mode)
	for part := range strings.SplitSeq(rest, ";") {
		scope, set, _ := strings.Cut(part, "=")
		mode, limits, _ := strings.Cut(set, ":")
		add(SetLimits, scope, limits)
		add(SetMode, scope, mode)
	}
	return all
}

// ReadKeySettings reads the settings in a scope key's first line: "expire seen offset pause limits", and the
// served share if the scope key has one. It returns none for foreign data.
func ReadKeySettings(name, header string) (all []Setting) {
	parts := strings.Split(header, " ")
	if len(parts) < 5 {
		return nil
	}
	if s, is := readSetting(SetPause, name, parts[3]); is && !s.Until.IsZero() {
		all = append(all, s)
	}
	if s, is := readSetting(SetLimits, name, parts[4]); is {
		all = append(all, s)
	}
	return all
}

// ReadWas reads a setting in a WasSet: of a pause only its end.
func ReadWas(what, text string) Setting {
	if what == SetPause {
		return Setting{What: what, Until: instantOf(text)}
	}
	s, _ := readSetting(what, "", text) // empty if nothing was set
	return s
}

// PauseEnd reads the end of a pause; zero for none.
func PauseEnd(text string) (time.Time, error) {
	micros, err := strconv.ParseUint(text, 10, 53)
	if err != nil {
		return time.Time{}, ErrUnreadable
	}
	return Instant(int64(micros)), nil
}

// instantOf reads an instant of a setting; zero for none.
func instantOf(text string) time.Time {
	at, _ := PauseEnd(text) // zero if it cannot be read
	return at
}

// SettingLimits reads the limits of a setting. It leaves out a limit that cannot be read.
func SettingLimits(text string) (limits []line.Limit) {
	for part := range strings.SplitSeq(text, ",") {
		if l, err := line.ParseLimit(part); err == nil {
			limits = append(limits, l)
		}
	}
	return limits
}
