package worker

import "go.uber.org/zap"

// guarded calls a function that the user gave. A panic in it is logged, and goes no further: it
// would end the process, since asynq recovers that of a handler only. returned tells that there
// was none.
func guarded(log *zap.Logger, of string, call func()) (returned bool) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("worker: "+of+" panicked", zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	call()
	return true
}
