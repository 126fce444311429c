// Package worker puts a throttle in front of asynq handlers. Before a task runs,
// its job is reserved. If the job is granted, the task runs. If the job is booked or
// in line, the task goes back to asynq, without losing a retry, and is woken in time
// for its slot.
//
//	shaper, err := worker.New(th, client, jobOf, nil)
//	server := asynq.NewServerFromRedisClient(client, shaper.Configure(asynq.Config{Concurrency: 16}))
//	mux := asynq.NewServeMux()
//	mux.Use(shaper.Wrap) // first, so that it is the outermost
//	…
//	err = server.Start(mux)
//	… wait for a signal …
//	shaper.Stop() // tasks that wait for their start go back to asynq at once
//	server.Shutdown()
//
// A charge belongs to one attempt of a task: its job's ID is made of the queue,
// the task's ID and its retry count. A task that is put back keeps its retry count and
// finds its booking. A task that failed and is retried is charged for each attempt. If
// the handler returned Untouched, the charge of that attempt is given back: the upstream
// was not touched.
//
// A deployment of asynq is all servers and clients with the same Redis and database. One
// deployment at a time owns a throttle. See DeploymentError and Shaper.Own.
//
// # Planning
//
// A Client reserves when tasks are enqueued, and enqueues each for its slot. A planned
// task has room when it comes at its slot, so that it is seldom put back. EnqueueAll does not
// wait for the tasks: it returns a Plan, whose Last is when the last task is expected to start.
//
// # In a handler
//
// Settle and SettleCosts correct the charge to what the task really took; Refund gives it back.
// With Options.Estimator, tasks are charged by what earlier tasks of the same kind were settled for. If an
// upstream asks to wait, the handler returns AskedToWait: the task's key is paused for all
// workers, its charge is given back, and the task comes again after the pause, without a retry
// spent. The package upstream reads how long HTTP and SMTP servers ask to wait.
//
// Report passes on what an upstream answered. The limits of a scope with a Floor follow the
// reports: a refusal, or a header that promises less, lowers the served share; other answers raise
// it again, up to the limits. AskedToWait counts as a refusal; only Report raises the served share.
//
// # Running limits
//
// Under a running limit (throttle.Running) a task occupies its places until its handler
// returns or panics. One call renews the leases of all tasks that run in this process. If a
// lease is not renewed in time, the handler's context ends with ErrPlaceLost. Cooldown
// keeps the places occupied for a while after the handler.
//
// # What asynq does
//
// asynq's own rules stay: a task runs at least once, and while it waits, its Deadline and the
// TTL of its Unique lock run on. Its Timeout begins anew each time that asynq delivers the task.
package worker
