package throttle

import (
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// mostSteps bounds the work of one call of a script. A step takes half a microsecond to one, so a call ends
// after 4 to 8 ms, and the next call does what is left.
const mostSteps = 8_000

// header returns the first arguments of every script: how far ahead jobs are booked, how long
// bookings count and the line's keys live, how many units a priority gets for one of the next lower, whether the
// lengths of lines are counted, how many steps one call may take, and the scopes.
func header(scopes []Scope, options Options) wire.Header {
	h := wire.Header{Kept: lineKept(scopes, options.Lookahead).Milliseconds(), Steps: mostSteps}
	h.Lookahead, h.Grace, h.Lower =
		options.Lookahead.Microseconds(), options.Grace.Microseconds(), options.unitsForOneLower()
	h.Counts = boundsLines(scopes)
	h.Scopes = make(map[string]line.Scope)
	for _, scope := range scopes {
		h.Scopes[scope.Name] = line.Scope{Mode: max(scope.Mode, options.Mode).counted(),
			Limits: scope.countedLimits(scope.Limits)}
	}
	return h
}

// boundsLines reports whether any line has a bound.
func boundsLines(scopes []Scope) bool {
	return slices.ContainsFunc(scopes, func(s Scope) bool { return s.MaxWaiting != Length{} })
}

// lineKept is how long the line's keys live after the last write: longer than any window for which a job may
// have to wait, longer than the distance of any slot, and longer than a lane is likely to wait for its turn.
func lineKept(scopes []Scope, lookahead time.Duration) time.Duration {
	longest := time.Duration(0)
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			longest = max(longest, time.Duration(scope.counted(limit).Length)*time.Microsecond)
		}
	}
	return lookahead + 2*longest + 30*24*time.Hour
}
