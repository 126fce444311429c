// Package simulation runs whole worlds in virtual time and checks that the product keeps its
// promises in them. It consists of tests:
//
//	go test ./internal/simulation -seed=1 -seeds=200 -hours=0.02 -backend=both
//
// # A world
//
// From one to three asynq servers, each a process of its own with a Throttle and a Shaper,
// work through some ten to a hundred tasks of up to five tenants and three domains. Everything
// that can vary is drawn from the seed before the world begins (draw_test.go):
//   - scopes, limits, windows and precisions, shares, lookahead and grace;
//   - when tasks arrive, in bursts and one by one, enqueued by asynq alone, made by worker.NewTask or planned by
//     worker.Client;
//   - weights, and costs of single scopes;
//   - for each call of a handler, how long it takes and how it ends;
//   - the servers' concurrency and intervals;
//   - what goes wrong (faults_test.go): servers that die with all they hold, servers shut down and begun anew,
//     processes cut off from Redis or stopped for a while, replies of the throttle's and asynq's scripts lost after
//     the command was done, forgotten scripts, steps of Redis' clock, pauses, limits and modes set at run time and
//     taken back, a paused queue, tasks deleted, archived and run by hand.
//
// Goroutines draw nothing, so their order does not change what is drawn. But Go chooses the order in which they run,
// and the product makes jitter, nonces and names that no seed decides. So a seed that failed mostly fails again, but
// not always.
//
// In some worlds limits follow their upstream (follow_test.go). Its refusals, the units that it serves and the units
// left are reported by handlers, and at any time by a reporter without a job.
//
// In some worlds there are quotas and opening hours, of the configuration and set at run time (schedule_test.go). Such
// a world begins shortly before a midnight, the end of a month or a change of the clocks in some zone, so that edges
// pass while jobs arrive. Redis' clock steps over these edges, and Redis loses its list of them. When all remaining
// jobs wait for an edge, a night passes until shortly before it: all processes are shut down meanwhile, and begin anew
// (nights_test.go).
//
// Some of the quotas are ramps (ramps_test.go), which begin before or after the beginning of the world, and some
// ramps are held from the start. At run time ramps replace quotas, and are held, continued and ended.
//
// In some worlds processes have advances, and some have none (advances_test.go). Many light jobs of one lane come
// together there, under longer windows, and commands take time to Redis and back. While these jobs start, processes
// die, stand still, lose replies, and limits, modes and pauses are set by another process.
//
// In some worlds lines have a bound (bounds_test.go), so that tasks of worker.Client are refused. In the calm worlds
// with a bound, worker.Client enqueues every task.
//
// There are three kinds of worlds: calm worlds without faults, rough worlds with some
// sorts of faults, and even worlds, in which the shares are measured.
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
// does not count again. The account asks Redis itself for what no reply has: how long a scope
// key's time stands still after a step of the clock; while shares are measured, which flows
// stand in line or were passed; the lengths of lines that have a bound; and the edges kept.
//
// Only on miniredis do keys expire in virtual time. On the real server they expire in real
// time, and a world takes less real time than any key lives.
//
// # What must hold
//
// No window over its limit. At each grant, in the order of Redis, every limit counts that is in
// force on one of the job's scope keys: no interval that is as long as the limit's window and
// contains the start holds more units than the limit, out of the units that are charged at that
// moment. This is exact even after charges were settled for more (the larger charges count from then
// on), after limits or modes were set (those in force at the decision apply; starts in shadow
// count, starts in mode Off do not) and after steps of the clock (instants are read in the
// time of the scope key's ledgers, which stands still after a step back). A window that is set
// at run time, or comes back, counts the grants since it came into force: Redis need not know
// of earlier ones.
//
// Reports only take away: the same interval holds no more than the served share of the limit
// after the last report that Redis answered, or holds one job alone. The served share lies
// between the scope's floor and 1.
//
// One thing is not exact: the settlement of a grant that was charged while time stood still
// may not find its entry, or may find another entry. Earlier charges of that scope key are
// then not checked any more.
//
// An advance counts as one more start, at the time of its charge. When a job starts out of it, the account moves the
// job's units from the charge to the start. The start must be in the sub-windows of the charge and within the process'
// Options.Advance after it, and take no more than is left. The windows that contain the start are then checked again,
// against the limits at the charge: the process does not know yet of limits or a pause that another process has set
// since. The windows are not checked if limits, modes or settlements for more units came between. The start has the
// time of the process, which may not know yet of a step of Redis' clock. No advance is given to a process without the
// option, and none while a job waits or is booked. Its scope keys have no limits or pause of their own, no mode but
// Enforce, no running limit and a whole served share. It takes at most a tenth of what each limit has left.
//
// No period over its quota. At each grant, for each quota in force: the period of the start holds no more than the
// units of the quota, out of the units that are charged at that moment. The periods are those of the clock on the wall
// in the quota's zone (package wallclock). A ramp has the units of the step that its dates give, and each Usage reports
// them. The start is read in the time of the ledgers as above: after a step back over an edge by up to 30 s, starts
// count in the period after the edge, until the clock has caught up. So by Redis' clock the period before the edge may
// hold twice its units, or under a ramp the units of the last step in addition. No other period does: the handlers'
// starts show this in scopes whose limits and modes are never set.
//
// No start outside of hours. The start of each grant lies in the hours in force, by Redis' clock at the decision,
// whatever steps that clock makes.
//
// Few edges. Redis keeps edges of no other calendars and hours than the world's, and of each no more than mostEdges.
//
// No more at once. From each grant on, no more units run under a running limit than the limit in force at the
// grant allows, by the handlers' own record, counting the jobs that were granted while the limit was in force in a
// mode other than Off. A job whose lease was over by Redis' clock, for example after the clock was set
// forward, does not count. Before its lease is over, no job is told that its places are lost.
//
// A handler runs under a grant of its own: the account has the grant, the handler does not begin before the start of
// the grant, and no other handler runs under it. The charge under each scope key is the cost that was
// drawn for the job in that scope; the weight if no cost was drawn; nothing if the cost is 0.
//
// Used is what was granted. Each Usage that is asked for, in the middle of everything,
// is compared with the account. The two must agree to the unit; a sub-window counts until
// all of it has left. The usage may be higher in scopes whose limits were set at some time, since a
// window that existed before keeps its precision and its entries, and under scope keys for
// which a report said what others had used.
//
// Every charged job runs. This is not checked in worlds that strike a process or lose a reply by which asynq takes a
// task (see the next paragraph), nor in worlds of several processes that lose four or more replies of reserve: if these
// belong to one grant, another process may ask for the job again without knowing of the grant.
//
// Every job exactly once. A job's handler is called once for each outcome drawn for the job, until
// an outcome ends it; then asynq no longer has its task, or has it archived if the outcome says so.
// Another call is accepted only if, since two seconds before the earlier call, the process died,
// was shut down, was stopped or was cut off, in short was struck: asynq is at-least-once there. An attempt that asynq
// has counted without a call, and a job archived for that, are accepted only if a process was struck, or the reply by
// which asynq takes a task was lost.
//
// No line over its bound. A refused task is not in asynq, and never runs; the client has no other error for a planned
// task. If worker.Client enqueues every task and none is retried, no script leaves a line longer than its bound, and in
// the end no job is counted. In every world with a bound, the jobs that are counted in the end are those that Redis
// knows.
//
// No job is stuck. All tasks have ended, and no job stands in line, by a bound (plan.bound). The bound is a sum of
// times, as if none of them overlapped:
//   - the time in which tasks arrive;
//   - for each scope, twice the time that the units of its busiest key take when its limits are served down to the
//     floor: heavy jobs leave up to half a window empty;
//   - two windows for each call of a job that is heavier than what the floor serves, and two windows more;
//   - for each refusal, twice the wait after the refusal before it (from a second to 5 minutes), and the wait that the
//     refusal itself asks for;
//   - a window for each report of what others have used;
//   - the time of every handler, with running limits 3 s more, and 5 s for each outcome that was drawn;
//   - twice every wait that a handler asks for, and twice the grace for each task that asynq alone enqueued and that
//     has at most one retry: it keeps a worker busy meanwhile;
//   - the time of every fault and 10 s, and the length of every step back of Redis' clock;
//   - for each process that is struck, 125 s until asynq brings its tasks back, and with running limits 30 s more;
//   - 10 minutes for limits that were set: twice the time for which the worker leaves a job alone that weighs more
//     than such a limit;
//   - a minute, and two more after each night. Nights do not count, but their number has a bound too: 20, one for each
//     period that the quotas need, one for each period of a ramp before its units hold for good, and one for each limit
//     in a report. With hours it is twice as many.
//
// Fair shares (even worlds: one limit for all, one burst, no faults). Over any stretch of
// pulls during which both of two tenants stand in line, the units pulled per share differ
// by at most the sum of the two tenants' heaviest jobs, each per share: the inequality of
// start-time fair queueing. A job that has lost its slot is pulled once more and not counted. A
// tenant counts twice in the sum if a heavy job of it has a claim or the virtual time has passed its
// tag (TestFairnessBound in internal/line).
//
// Nothing stays. When all is over and every slot's grace has passed, nothing is booked. Every key of the throttle
// expires within the time that docs/redis-state.md says; this is checked before that, and once more in the end. On
// miniredis that time then passes, and no key is left.
//
// # What is not simulated
//
// Loss of Redis' data, failover, fallbacks that grant without Redis, processes with
// different configurations, deadlines and timeouts of tasks, steps back of Redis' clock
// that add up to more than 30 s: they have tests of their own, or break the bounds as
// documented.
package simulation
