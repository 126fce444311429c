package throttle

import (
	"io"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// standardError writes to the os.Stderr of the moment, which a program may have replaced.
type standardError struct{}

func (standardError) Write(line []byte) (int, error) { return os.Stderr.Write(line) }

// toStandardError returns the logger of a throttle whose Options have none.
var toStandardError = sync.OnceValue(func() *zap.Logger { return loggerTo(standardError{}) })

// loggerTo returns a logger that writes each entry at warn or above as one line.
func loggerTo(w io.Writer) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), zapcore.WarnLevel))
}

// logEvery is the least time between two entries of one kind.
const logEvery = time.Second

// rateLimitedLog logs events that may occur with every job, without flooding the log of a worker that handles
// thousands of jobs.
type rateLimitedLog struct {
	logger *zap.Logger
	mu     sync.Mutex
	last   map[string]time.Time
	left   map[string]int // entries left out since the last entry, by kind
}

func newRateLimitedLog(logger *zap.Logger) *rateLimitedLog {
	return &rateLimitedLog{logger: logger, last: make(map[string]time.Time), left: make(map[string]int)}
}

// due reports whether a kind may be logged again, and how many of its entries were left out since the last.
func (l *rateLimitedLog) due(kind string) (left int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, logged := l.last[kind]; logged && now.Sub(last) < logEvery {
		l.left[kind]++
		return 0, false
	}
	left = l.left[kind]
	l.last[kind], l.left[kind] = now, 0
	return left, true
}

// trouble logs that a pull could not look at every waiting job. The script's text may contain a tenant's key.
func (l *rateLimitedLog) trouble(throttle, text string) {
	if left, due := l.due("trouble"); due {
		l.logger.Warn("throttle: something in line cannot be pulled, and is left alone for a second",
			zap.String("throttle", throttle), zap.Int("not_logged", left))
		l.logger.Debug("throttle: why it cannot be pulled", zap.String("cause", text))
	}
}

// fallback logs that Redis could not decide, and how the fallback treats jobs meanwhile.
func (l *rateLimitedLog) fallback(throttle string, is Fallback, err *UnavailableError) {
	if left, due := l.due("fallback " + err.Failure); due {
		l.logger.Warn("throttle: Redis cannot decide, "+meanwhile(is),
			zap.String("throttle", throttle), zap.Stringer("fallback", is), zap.String("failure", err.Failure),
			zap.Int("not_logged", left), zap.NamedError("cause", err.Err))
	}
}

func meanwhile(is Fallback) string {
	switch is {
	case FallbackOpen:
		return "jobs start unchecked"
	case FallbackLocal:
		return "jobs start within this process' share"
	}
	return "no job starts"
}

// shadow logs what a limit in shadow mode would have done.
func (l *rateLimitedLog) shadow(throttle string, r Reservation) {
	if left, due := l.due("shadow " + r.Shadow.Scope); due {
		l.logger.Info("throttle: a limit in shadow would have delayed a job",
			zap.String("throttle", throttle), zap.String("scope", r.Shadow.Scope), zap.Stringer("limit", r.Shadow.Limit),
			zap.Duration("delay", r.Shadow.Until.Sub(r.Now)), zap.Int("not_logged", left))
	}
}
