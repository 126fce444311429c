package view

import (
	"context"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// Sets is what is set at run time, as it was read last. The zero value was not read yet.
type Sets struct {
	All    []inspect.Setting
	Known  bool           // it was read once
	newest inspect.Change // when it was read
	read   time.Time      // by the local clock; zero: not yet
	took   time.Duration
}

// Read reads what is set where that is due: it looks at every key that Redis has. It is due
// when that takes a thousandth of the time, and sooner when something was changed.
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

// Age is how long ago it was read, by the local clock.
func (s Sets) Age() time.Duration { return time.Since(s.read) }

// Anew makes the next Read read it in any case.
func (s Sets) Anew() Sets {
	s.read = time.Time{}
	return s
}

// Later leaves it as it is, as long as reading that took so long allows it.
func (s Sets) Later(took time.Duration) Sets {
	s.read, s.took = time.Now(), took
	return s
}

// due tells whether it is to be read again.
func (s Sets) due(changed bool, now time.Time) bool {
	wait := max(10*time.Second, 1000*s.took)
	if changed {
		wait = 300 * s.took
	}
	return s.read.IsZero() || now.Sub(s.read) >= wait
}

// At is what of it holds at an instant on Redis' clock.
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

// forgottenAfter is for how long limits or a mode are set without an end until they are taken
// to be forgotten.
const forgottenAfter = 7 * 24 * time.Hour

// Forgotten returns the limits and modes that were set a week ago or longer, without an end.
func Forgotten(all []inspect.Setting, now time.Time) []inspect.Setting {
	return slices.DeleteFunc(slices.Clone(all),
		func(s inspect.Setting) bool { return !s.Until.IsZero() || now.Sub(s.At) < forgottenAfter })
}
