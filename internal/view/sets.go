package view

import (
	"context"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// Sets is the last reading of the settings made at run time. The zero value was never read.
type Sets struct {
	All    []inspect.Setting
	Known  bool           // the settings were read at least once
	newest inspect.Change // at the time of the reading
	read   time.Time      // by the local clock; zero: not yet
	took   time.Duration
}

// Read reads the settings if that is due. A reading scans all of Redis' keys, so it may take a
// thousandth of the time; after a change it is due sooner.
func (s Sets) Read(ctx context.Context, th *inspect.Inspector, changes []inspect.Change) (Sets, error) {
	var newest inspect.Change
	if len(changes) > 0 {
		newest = changes[0]
	}
	if !s.due(newest != s.newest, time.Now()) {
		return s, nil
	}
	began := time.Now()
	all, err := th.Settings(ctx)
	if err != nil {
		return s, err
	}
	return Sets{All: all, Known: true, newest: newest, read: time.Now(), took: time.Since(began)}, nil
}

// Age returns the age of the reading, by the local clock.
func (s Sets) Age() time.Duration { return time.Since(s.read) }

// Anew returns settings that the next Read reads in any case.
func (s Sets) Anew() Sets {
	s.read = time.Time{}
	return s
}

// Later postpones the next reading as far as a reading of this duration demands.
func (s Sets) Later(took time.Duration) Sets {
	s.read, s.took = time.Now(), took
	return s
}

// due reports whether the settings are old enough to be read again.
func (s Sets) due(changed bool, now time.Time) bool {
	wait := max(10*time.Second, 1000*s.took)
	if changed {
		wait = 300 * s.took
	}
	return s.read.IsZero() || now.Sub(s.read) >= wait
}

// At returns the settings in force at an instant on Redis' clock.
func (s Sets) At(now time.Time) []inspect.Setting {
	holds := slices.DeleteFunc(slices.Clone(s.All),
		func(set inspect.Setting) bool { return !set.Until.IsZero() && !set.Until.After(now) })
	return append([]inspect.Setting{}, holds...)
}

// Find returns the setting of a kind, a pause, limits or a mode; one without At if there is none.
func Find(all []inspect.Setting, what string) inspect.Setting {
	for _, s := range all {
		if s.What == what {
			return s
		}
	}
	return inspect.Setting{What: what}
}

// forgottenAfter is the age at which limits or a mode without an end count as forgotten.
const forgottenAfter = 7 * 24 * time.Hour

// Forgotten returns the limits and modes without an end that were set at least a week ago.
func Forgotten(all []inspect.Setting, now time.Time) []inspect.Setting {
	return slices.DeleteFunc(slices.Clone(all),
		func(s inspect.Setting) bool { return !s.Until.IsZero() || now.Sub(s.At) < forgottenAfter })
}
