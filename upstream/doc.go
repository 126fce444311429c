// Package upstream reads what servers say about their limits: how long an HTTP or SMTP server asks
// clients to wait, and how many units of its limits an HTTP API reports as left. The package needs neither
// a throttle nor a queue, and serves any client:
//
//	if wait, asked := upstream.HTTPWait(resp); asked {
//		// do not call that server again until wait is over
//	}
//
// A handler of package worker then returns worker.AskedToWait(scope, wait, err), and passes the
// result of HTTPLimits to worker.Report. Without asynq, use
// inspect.Inspector.Pause and throttle.Throttle.Report.
//
// An upstream may send anything. Each function takes any input, reads a bounded part of it, and
// returns waits from 0 to MaxWait. All are safe for use by many goroutines.
package upstream
