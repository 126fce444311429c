// Package upstream reads what servers say of their limits: how long an HTTP or SMTP server asks to
// be left alone, and what is left of the limits of an HTTP API. It knows neither a throttle nor a
// queue, and serves any client:
//
//	if wait, asked := upstream.HTTPWait(resp); asked {
//		// call nobody there for so long
//	}
//
// A handler under the package worker returns worker.AskedToWait(scope, wait, err) then, and hands
// worker.Report what HTTPLimits returns. Without asynq these are inspect.Inspector.Pause
// and throttle.Throttle.Report.
//
// What is read is the upstream's and may be anything. Each function takes any input, reads a bounded
// part of it, and returns waits from 0 to MaxWait. All are safe for use by many goroutines.
package upstream
