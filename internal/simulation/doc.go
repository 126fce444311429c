// Package simulation runs whole worlds in virtual time and checks that the product keeps its
// promises in them. It consists of tests:
//
//	go test ./internal/simulation -seed=1 -seeds=200 -hours=0.02 -backend=both
//
// # A world
//
// From one to three asynq servers, each a process of its own with a Throttle and a Shaper,
// work through some ten to a hundred tasks of up to five tenants and three domains. Everything
// that can vary is drawn from the seed before the world begins (draw_test.go): scopes,
// limits, windows and precisions, shares, lookahead and grace; when tasks arrive, in
// bursts and one by one, enqueued by asynq alone, made by worker.NewTask or planned by
// worker.Client; weights, and costs of single scopes; for each call of a handler how long it takes and how it ends;
// the servers' concurrency and intervals; and what goes wrong (faults_test.go): servers
// that die with all they hold, servers shut down and begun anew, processes cut off from
// Redis or stopped for a while, replies of the throttle's and asynq's scripts lost after the command was done,
// forgotten scripts, steps of Redis' clock, pauses, limits and modes set at run time and taken back, a paused
// queue, tasks deleted, archived and run by hand. Goroutines draw nothing, so their order does not change what
// is drawn. But Go chooses the order in which they run, and the product draws jitter, nonces and names itself,
// so a seed that fails mostly fails again, not always.
//
// In some worlds limits follow their upstream (follow_test.go): handlers, and at any time a
// reporter without a job, report its refusals, the units that it serves and the units left.
//
// In some worlds there are quotas and opening hours, of the configuration and set at run time (schedule_test.go). They
// begin shortly before a midnight, the end of a month or a change of the clocks in some zone, so that edges pass while
// jobs arrive. Redis' clock steps over these edges, and Redis loses the edges that it keeps. When all remaining jobs
// wait for an edge, a night passes until shortly before it: all processes are shut down meanwhile, and begin anew
// (nights_test.go).
//
// Some of the quotas are ramps (ramps_test.go), which begin before or after the beginning of the world, and some of
// these are held from the start. At run time ramps replace quotas, and are held, continued and ended.
//
// In some worlds processes have advances, and some have none (advances_test.go). Many light jobs of one lane come
// together there, under longer windows, and commands take time to Redis and back. While these jobs start, processes
// die, stand still, lose replies, and limits, modes and pauses are set by another process.
//
// In some worlds lines have a bound (bounds_test.go), so that tasks of worker.Client are refused. In the calm worlds
// among these, it enqueues every task.
//
// There are three kinds of worlds: calm worlds without faults, rough worlds with some
// sorts of faults, and even worlds in which the shares are measured.
//
// # Redis
//
// Everything runs in one testing/synctest bubble. Redis is a miniredis in it, or a real
// redis-server outside. In between is the bridge (bridge_test.go): it executes one command
// after the other on one connection and has the reply before the client's Write returns,
// so that no goroutine waits for a network and virtual time goes on. It is also Redis'
// clock: it puts the time into each call of a script that would read Redis' own. Behind the
// bridge, the account (account_test.go) records what Redis did, in the order in which Redis
// did it, by the replies alone. A repeated answer of reserve, for the same asker and asking,
// does not count again. The account asks Redis itself for two things that no reply has:
// how long a scope key's time stands still after a step of the clock, and which flows stand in
// line while shares are measured.
//
// Only on miniredis do keys expire in virtual time. On the real server they expire in real
// time, and a world takes less real time than any key lives.
//
// # What must hold
//
// No window over its limit. At each grant, in the order of Redis: for each limit in force
// at that moment on each of its scope keys, no interval of the length of its window that
// contains the start holds more units than the limit, out of those that are charged at that moment.
// This is exact even after charges were settled for more (the larger charges count from then
// on), after limits or modes were set (those in force at the decision apply; starts in shadow
// count, starts in mode Off do not) and after steps of the clock (instants are read in the
// time of the scope key's ledgers, which stands still after a step back). A window that is set
// at run time, or comes back, counts the grants since it came into force: Redis need not know
// of earlier ones.
//
// Reports only take away: the same interval holds no more than the served share of the limit,
// as the last report that Redis answered set it, or the one job alone. The served share lies
// between the scope's floor and 1.
//
// One thing is not exact: the settlement of a grant that was charged while time stood still
// may not find its entry, or may find another entry. Earlier charges of that scope key are
// then not checked any more.
//
// An advance counts as one more start, at the time of its charge. When a job starts out of it, the account moves the
// job's units from the charge to the start. The start must be in the same sub-windows and within the process'
// Options.Advance, and take no more than is left. The windows of the start are then checked again, against the limits
// at the charge: limits that another process has set since act later, and so does a pause. They are not checked if
// limits, modes or settlements for more units came between. The instant of the start is that of the process, which may
// not know yet of a step of Redis' clock. No advance is given to a process without the option, while a job waits or is
// booked, under a scope key with limits of its own, a mode, a pause, a running limit or a lower served share, or of
// more than a tenth of what a limit has left.
//
// No period over its quota. At each grant, for each quota in force: the period of the start holds no more than the
// units of the quota, out of those that are charged at that moment, by the clock on the wall of the zone (package
// wallclock). A ramp has the units of its step, counted from dates on that clock, and each Usage reports them. The
// start is read in the time of the ledgers as above: after a step back over an edge by up to 30 s, starts count in the
// period that had begun, until the clock has caught up. So by Redis' clock the period before it may hold twice its
// units then, or under a ramp the units of the last step in addition. No other period does: the handlers' starts show
// this in scopes whose limits and modes are never set.
//
// No start outside of hours. The start of each grant lies in the hours in force, by Redis' clock at the decision,
// whatever steps that clock makes.
//
// Few edges. Redis keeps edges of no other calendars and hours than the world's, and of each no more than mostEdges.
//
// No more at once. From each grant on, no more units run under a running limit than the limit in force at the
// grant allows, by the handlers' own record, counting the jobs that were granted while the limit was in force in a
// mode other than Off. A job whose lease was over by Redis' clock, for example since the clock was set
// forward, does not count; before its lease is over no job is told that its places are lost.
//
// A handler runs under a grant of its own: the account has the grant, the handler does not begin before the start of
// the grant, and no other handler runs under it. The charge under each scope key is the cost that was
// drawn for the job in that scope; the weight if no cost was drawn; nothing if the cost is 0.
//
// Used is what was granted. Each Usage that is asked for, in the middle of everything,
// is compared with the account. They must be equal to the unit; a sub-window counts until
// all of it has left. The usage may be higher in scopes whose limits were set at some time, since a
// window that existed before keeps its precision and its entries, and under scope keys for
// which a report said what others had used.
//
// Every charged job runs, except for grants of processes that were struck, and grants whose
// reply was lost four times in a row if there are several processes, since the other processes
// do not know of these grants.
//
// Every job exactly once. A job's handler is called once for each outcome drawn for the job, until
// an outcome ends it; then asynq no longer has its task, or has it archived if the outcome says so.
// Another call is accepted only if, since two seconds before the earlier call, the process died,
// was shut down, was stopped or was cut off: asynq is at-least-once there. An attempt that asynq has counted
// without a call, and a job archived for that, are accepted only if a process was struck in
// this way, or the reply by which asynq takes a task was lost.
//
// No line over its bound. A refused task is not in asynq, and never runs; the client has no other error for a planned
// task. If worker.Client enqueues every task and none is retried, no script leaves a line longer than its bound, and in
// the end no job is counted. In every world, the jobs that are counted in the end are those that Redis knows.
//
// No job is stuck. All tasks have ended, and no job stands in line, by a bound (plan.bound). The bound is a sum of
// times, as if none of them overlapped:
//   - the time until the last arrival;
//   - for each scope, the time in which its limits, served down to the floor, serve the units of the busiest key;
//     twice that, since heavy jobs leave up to half a window empty;
//   - two windows for each job that is heavier than what the floor serves, and two windows more;
//   - for each refusal, twice the wait after the refusal before it (from a second to 5 minutes), and the wait that the
//     refusal itself asks for;
//   - a window for each report of what others have used;
//   - the time of every handler, and 5 s for each attempt that does not end its job;
//   - twice every wait that a handler asks for;
//   - the time of every fault, and 125 s for each process that is struck, until asynq brings its tasks back;
//   - 10 minutes for limits that were set: twice the time for which the worker leaves a job alone that weighs more
//     than such a limit;
//   - a minute, and two more after each night. Nights do not count, but their number has a bound too: one for each
//     period that the quotas need, one for each period of a ramp before its units hold for good, one for each limit in
//     a report, and 20 for hours.
//
// Fair shares (even worlds: one limit for all, one burst, no faults). Over any stretch of
// pulls during which both of two tenants stand in line, the units pulled per share differ
// by at most the heaviest job of each per share: the inequality of start-time fair
// queueing. A tenant of which a heavy job has a claim or was passed has one job more
// (TestFairnessBound in internal/line).
//
// Nothing stays. When all is over and every slot's grace has passed, nothing is booked. In
// the end every key of the throttle expires, within the time that
// docs/redis-state.md says, as it does before all bookings are over; on miniredis that time passes, and no key is left.
//
// # What is not simulated
//
// Loss of Redis' data, failover, fallbacks that grant without Redis, processes with
// different configurations, deadlines and timeouts of tasks, steps back of Redis' clock
// that add up to more than 30 s: they have tests of their own, or break the bounds as
// documented.
package simulation
