package worker

import "go.uber.org/zap"

// guarded calls a function of the user, and logs a panic in it, which would else end the process:
// asynq recovers panics of handlers only. returned is true if there was none.
func guarded(log *zap.Logger, of string, call func()) (returned bool) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("worker: "+of+" panicked", zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	call()
	return true
}
