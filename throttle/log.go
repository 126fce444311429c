package throttle

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

// logEvery is how often one kind of thing is logged at most.
const logEvery = time.Second

// rateLimitedLog tells of what may happen with every job without flooding the log of a
// worker that handles thousands of them.
type rateLimitedLog struct {
	logger *zap.Logger
	mu     sync.Mutex
	last   map[string]time.Time
	held   map[string]int
}

func newRateLimitedLog(logger *zap.Logger) *rateLimitedLog {
	return &rateLimitedLog{logger: logger, last: make(map[string]time.Time), held: make(map[string]int)}
}

// due tells whether it is time to log a kind again, and how often it was not since.
func (l *rateLimitedLog) due(kind string) (held int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, logged := l.last[kind]; logged && now.Sub(last) < logEvery {
		l.held[kind]++
		return 0, false
	}
	held = l.held[kind]
	l.last[kind], l.held[kind] = now, 0
	return held, true
}

// skipped tells of a lane that this process cannot pull.
func (l *rateLimitedLog) skipped(throttle string, lane Lane, err error) {
	if held, due := l.due("skipped"); due {
		l.logger.Warn("throttle: a lane cannot be pulled, and is left alone for a second",
			zap.String("throttle", throttle), zap.Int("not_logged", held), zap.NamedError("cause", err))
		var state *StateError
		key := ""
		if errors.As(err, &state) {
			key = state.Key
		}
		l.logger.Debug("throttle: it is this lane", zap.String("lane", string(lane)), zap.String("key", key))
	}
}

// fallback tells that Redis could not decide.
func (l *rateLimitedLog) fallback(throttle string, err *UnavailableError) {
	if held, due := l.due("fallback " + string(err.Failure)); due {
		l.logger.Warn("throttle: Redis cannot decide, the fallback does",
			zap.String("throttle", throttle), zap.String("failure", string(err.Failure)),
			zap.Int("not_logged", held), zap.NamedError("cause", err.Err))
	}
}

// shadow tells what a limit in shadow would have done.
func (l *rateLimitedLog) shadow(throttle string, r Reservation) {
	if held, due := l.due("shadow " + r.Shadow.Scope); due {
		l.logger.Info("throttle: a limit in shadow would have delayed a job",
			zap.String("throttle", throttle), zap.String("scope", r.Shadow.Scope), zap.Stringer("limit", r.Shadow.Limit),
			zap.Duration("delay", r.Shadow.Until.Sub(r.Now)), zap.Int("not_logged", held))
	}
}
