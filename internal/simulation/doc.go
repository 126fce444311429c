// Package simulation lets whole worlds happen in virtual time and holds the product's
// promises against them. It consists of tests:
//
//	go test ./internal/simulation -seed=1 -seeds=200 -hours=0.02 -backend=both
//
// # A world
//
// From one to three asynq servers, each a process of its own with a Throttle and a Shaper,
// work through some ten to a hundred tasks of up to five tenants and three domains. All
// that can vary is drawn from the seed before the world begins (draw_test.go): scopes,
// limits, windows and precisions, shares, lookahead and grace; when tasks arrive, in
// bursts and one by one, enqueued by asynq alone, made by worker.NewTask or planned by
// worker.Client; weights, and costs of single scopes; for each call of a handler how long it takes and how it ends;
// the servers' concurrency and intervals; and what goes wrong (faults_test.go): servers
// that die with all they hold, servers shut down and begun anew, processes cut off from
// Redis, replies of the throttle's and asynq's scripts lost after the command was done,
// forgotten scripts, steps of Redis' clock, pauses, limits and modes set at run time and taken back, a paused
// queue, tasks deleted, archived and run by hand. Goroutines draw nothing, so their order does not change what
// is drawn; what order they run in is Go's to choose, and the jitter, nonces and names of the product are its
// own. A seed that fails mostly fails again.
//
// In some worlds limits follow their upstream (follow_test.go): what that says, refusals and
// what it serves and has left, is reported by handlers, and at any time by somebody else.
//
// There are three kinds of worlds: calm ones without faults, rough ones with some sorts
// of them, and even ones in which the shares are measured.
//
// # Redis
//
// Everything runs in one testing/synctest bubble. Redis is a miniredis in it, or a real
// redis-server outside. In between is the bridge (bridge_test.go): it does one command
// after the other on one connection and has the reply before the client's Write returns,
// so that no goroutine waits for a network and virtual time goes on. It is also Redis'
// clock: it puts the time into each call of a script that would read Redis' own. And it
// is where the account is kept (account_test.go) of what Redis did, in the order in which
// it did it, by the replies alone. An answer of reserve that is repeated, for the same
// asker and asking, is no new one. Redis itself is asked for two things that no reply has:
// how long a scope key's time stands still after a step of the clock, and who stands in
// line while shares are measured.
//
// Keys expire in virtual time on miniredis only. The real server's do in real time, of
// which a world takes less than any of them lives.
//
// # What must hold
//
// No window over its limit. At each grant, in the order of Redis: for each limit in force
// at that moment on each of its scope keys, no interval of the length of its window that
// contains the start holds more than its units, of all that is charged at that moment.
// This is exact also where charges were settled for more (they count from then on), where
// limits or modes are set (those in force at the decision; what started in shadow counts,
// what started in mode Off does not) and where the clock steps (instants are
// those of the scope key's ledgers, whose time stands still after a step back). A window
// that is set at run time, or comes back, counts what was granted since it is in force:
// Redis need not know more of it.
//
// What an upstream said only takes away: the same interval holds no more than what is served
// of the limit, by the last report that Redis answered, or the one job alone. What is served
// is what the last report said, and lies between the scope's floor and all.
//
// One thing is not exact: the settlement of a grant that was charged while time stood still
// may not find its entry, or find another one. What was charged before to that scope key is
// then not checked any more.
//
// No more at once. From each grant on, no more units run under a running limit than the limit in force at the
// grant allows, by the handlers' own record, of all that was granted while the limit was in force in a mode
// other than Off. A job whose lease was over by Redis' clock, for example since the clock was set
// forward, does not count; nobody is told before that its places are lost.
//
// A handler runs under a grant of its own: one that the account has, not before its start, and once
// for each. What it was charged under each scope key is the cost that was drawn for its job in that
// scope, its weight where none was drawn, and nothing under a scope that costs it nothing.
//
// Used is what was granted. Each Usage that is asked for, in the middle of everything,
// is compared with the account: equal, to the unit, sub-windows counted until all of them
// has left; at least as much on scopes whose limits were set at some time, since a window
// that was there before keeps its precision and what it has, and on scope keys of which it
// was reported what others had used.
//
// Nothing is charged that does not run, but for grants of processes that were struck, and
// grants whose reply was lost four times running where there are several processes, since
// another one does not know of them.
//
// Every job exactly once. Its handler is called once for each outcome drawn for it, until
// one ends it, and asynq has it no more, or archived if it ended so. Another call is
// accepted only if since two seconds before the earlier one its process died, was shut
// down or was cut off: asynq is at-least-once there. An attempt that asynq has counted
// without a call, and a job archived for that, are accepted only where a process was
// struck so, or the reply by which asynq takes a task was lost.
//
// Nobody is stuck. All tasks have ended, and nobody stands in line, by a bound (plan.bound) that adds up, as if none of
// it happened at the same time: until the last arrival; for each scope the busiest key's
// units by its limits, as far as its floor has them served, twice since heavy jobs leave up
// to half a window empty, two windows for each job that is heavier than what is served then,
// and two windows; for each refusal twice the wait of the one before, from a second to 5
// minutes, and what it asks for; a window for each report of what others have used; every
// handler's time; 5 s for each attempt that does not end its job; every
// wait asked for, twice; the time of every fault; 125 s for each process that is struck,
// by when asynq brings back what it held; 10 minutes for limits that were set, twice what
// the worker leaves a job alone for which such a limit has no room; and a minute.
//
// Fair shares (even worlds: one limit for all, one burst, no faults). Over any stretch of
// pulls during which both of two tenants stand in line, the units pulled per share differ
// by at most the heaviest job of each per share: the inequality of start-time fair
// queueing. A tenant of which a heavy job has a claim or was passed has one job more
// (TestFairnessBound in internal/line).
//
// Nothing stays. When all is over and every slot's grace has passed, nothing is booked. In
// the end every key of the throttle expires, within the time that
// docs/redis-state.md says; on miniredis that time passes, and none is left.
//
// # What is not simulated
//
// Loss of Redis' data, failover, fallbacks that grant without Redis, processes with
// different configurations, deadlines and timeouts of tasks, steps back of Redis' clock
// that add up to more than 30 s: they have tests of their own, or break the bounds as
// documented.
package simulation
