package throttle

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// fallbackLogEvery is how often one kind of failure is logged at most.
const fallbackLogEvery = time.Second

// rateLimitedLog tells of fallbacks without flooding the log of a worker that
// handles thousands of jobs while Redis is away.
type rateLimitedLog struct {
	logger *zap.Logger
	mu     sync.Mutex
	last   map[Failure]time.Time
	held   map[Failure]int
}

func newRateLimitedLog(logger *zap.Logger) *rateLimitedLog {
	return &rateLimitedLog{logger: logger, last: make(map[Failure]time.Time), held: make(map[Failure]int)}
}

// skipped tells of a lane that this process cannot pull.
func (l *rateLimitedLog) skipped(throttle string, lane Lane, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const kind = Failure("skipped")
	now := time.Now()
	if last, logged := l.last[kind]; logged && now.Sub(last) < fallbackLogEvery {
		return
	}
	l.logger.Warn("throttle: a lane cannot be pulled, and is left alone for a second",
		zap.String("throttle", throttle), zap.String("lane", string(lane)), zap.NamedError("cause", err))
	l.last[kind] = now
}

func (l *rateLimitedLog) fallback(throttle string, err *UnavailableError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, logged := l.last[err.Failure]; logged && now.Sub(last) < fallbackLogEvery {
		l.held[err.Failure]++
		return
	}
	l.logger.Warn("throttle: Redis cannot decide, the fallback does",
		zap.String("throttle", throttle), zap.String("failure", string(err.Failure)),
		zap.Int("not_logged", l.held[err.Failure]), zap.NamedError("cause", err.Err))
	l.last[err.Failure], l.held[err.Failure] = now, 0
}
