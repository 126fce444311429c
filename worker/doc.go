// Package worker puts a throttle in front of asynq handlers. Before a task runs,
// its job is reserved: granted, it runs; booked or in line, it goes back to asynq
// until its slot, without losing a retry, and is woken at that moment.
//
//	shaper, err := worker.New(th, client, jobOf, nil)
//	server := asynq.NewServerFromRedisClient(client, shaper.Configure(asynq.Config{Concurrency: 16}))
//	mux := asynq.NewServeMux()
//	mux.Use(shaper.Wrap) // first, so that it is the outermost
//	…
//	err = server.Start(mux)
//	… wait for a signal …
//	shaper.Stop() // those who wait for their start return at once
//	server.Shutdown()
//
// A charge belongs to one attempt of a task: its job's ID is made of the queue,
// the task's ID and its retry count. A task that is put back keeps its retry count and
// finds its booking; a task that failed and is retried is charged again, unless its
// handler said that the upstream was not touched (Untouched).
//
// One deployment of asynq owns a throttle: all servers and clients with the same
// Redis and database: see DeploymentError and Shaper.Own.
//
// # Planning
//
// A Client reserves when tasks are enqueued, and enqueues each for its slot: such a
// task is not put back when it comes, and EnqueueAll tells when the last of many is
// expected to start.
//
// # In a handler
//
// Settle and SettleCosts correct the charge to what the task really took, Refund takes it back.
// With Options.Estimator the next task of its kind is charged by what was settled. An
// upstream that asks to wait is left alone by all workers when the handler returns
// AskedToWait: the task's key is paused, its charge given back, and it takes its place after
// the pause, without a retry spent. The package upstream finds in replies of HTTP and SMTP
// servers how long they ask to wait.
//
// Report tells what an upstream answered. The limits of a scope with a Floor follow it: a
// refusal lowers the part of them that is served, as does a header that says that it serves
// less, and answers raise it, never above the limits. AskedToWait and its like are such a
// refusal; only Report raises.
//
// # What runs at once
//
// Under a running limit (throttle.Running) a task holds its place until its handler has
// returned, however it does; the leases of all that run here are renewed in one call. A
// handler whose lease was over before that has its context ended with ErrPlaceLost. Cooldown
// keeps its place for a while after it.
//
// # What asynq does
//
// What asynq does by itself stays as it is: a task is run at least once, a
// Timeout and a Deadline go on while it waits, and so does a Unique lock.
package worker
