// Package throttle shapes work under limits kept in Redis: a job is delayed, not
// dropped. A job that finds no room gets a slot, the earliest start at which all
// its limits have room, and asks again at its slot.
//
//	th, err := throttle.New("smtp", client, []throttle.Scope{
//		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(200)}},
//		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(1000), throttle.PerDay(50_000)}},
//	}, nil)
//	r, err := th.Reserve(ctx, throttle.Job{ID: "mail-17", Weight: 3, Keys: map[string]string{"tenant": "acme"}})
//
// # The guarantee
//
// For every limit, in every interval of length Window on Redis' clock, the weights
// of the jobs whose granted start lies in the interval sum to at most Units: with any number
// of processes, with late jobs, retries and lost answers. A job is charged to all
// its limits or to none, by one script, in one round trip.
//
// For every running limit, at every instant of Redis' clock, the weights of the jobs that run
// sum to at most Units. A job runs from its granted start until Done and its cool-down, or until
// a Lease (and up to a thousandth of a Lease) after it was last renewed.
//
// The main exceptions; docs/guide/guarantees.md has all:
//
//   - What Redis loses (a failover, a restart without persistence) is forgotten.
//   - The time between a grant and the job's first effect is not seen: see Scope.Margin.
//   - A charge that Settle raises after the job's start, or a limit that is lowered, can leave a
//     window with more units than its limit.
//   - A window or a precision that is new to a scope key counts only the jobs since it was first
//     used. A new number of units for the same window counts at once.
//   - A job that runs on after its Lease is not counted.
//   - With FallbackOpen and FallbackLocal, jobs run that Redis did not count.
//
// # Costs
//
// A job takes its Weight of each of its limits. Job.Costs may name another number for the limits
// of a scope: one message to 20 recipients, say, counts as one connection and as 20 mails.
//
// # Bookings
//
// A booking keeps its units from newcomers, which are placed around it: a light job may fill
// a gap before the booking, but no newcomer moves it to a later time. When the job asks at its slot,
// only units that have really started count. A job that comes after its slot may use what is
// free then, or goes back to the front of its lane. From 0.1 s after the slot on, the next job of the
// same lane that asks takes over the slot of a job that has not come. Otherwise a booking whose job
// does not come stops counting Options.Grace after its slot.
//
// # Line
//
// Jobs are booked as far ahead as Options.Lookahead. The others wait in lanes, one for each
// distinct set of scope keys and each priority, in order of arrival. A lane stands under the
// one scope key that has no room for its first job, with the other lanes that wait for that
// key. Among these lanes, the keys of Options.FairScope take turns in units, by their shares; among the
// jobs of one such key, a higher Job.Priority comes first. A pull books the jobs whose turn has come.
// The package worker and Wait pull; a program with a queue of its own uses a Driver.
//
// # Lost answers
//
// The jobs of a process that come at the same time are decided together. After a call whose
// answer was lost, the throttle first asks Redis what became of the call. If Redis has decided the call,
// a job that asks again with the Nonce of the error gets the grant of that call, if the grant is still of
// use; otherwise the grant is given back and the job is decided anew. If Redis has not
// decided the call, it never will: the job may have run elsewhere in the meantime.
//
// # Settling
//
// A job is charged its Weight. Settle corrects the charge to what the job really took, in place
// at its start, in all limits, once for each grant; Refund corrects it to nothing. Units that
// were not taken are free at once. Units beyond the charge may put a window over its limit; then
// no job starts until the window is under its limit again.
//
// # What runs at once
//
// A running limit, made by Running, limits what runs at once, beside the windows of its scope. A scope has
// at most one. A job that is granted under a running limit occupies its places until Done is called, or until
// the Lease in its Reservation is over: call Renew about three times in a Lease while the job runs.
// The package worker calls both. Jobs wait for places in line, as they do for windows, and a pull
// is due when a place is given back. Settle and Refund leave places alone.
//
// # Pausing
//
// Pause of the package inspect closes a scope key until a time, for all processes, also in a scope
// without limits; Resume opens the key. A job of a paused key gets a slot after the pause. Other jobs
// are not delayed.
//
// # Limits that follow the upstream
//
// With a Scope.Floor, the limits of the scope's keys follow what their upstream says. Report lowers
// the served share of the limits after a refusal or if headers say so, and raises the share after answers, for all
// processes. The limits themselves are never exceeded.
//
// # Limits and modes at run time
//
// SetLimits and SetMode of the package inspect keep limits and modes in Redis. These are in force for every
// process from its next decision on, until ResetLimits and ResetMode. Limits of a key win over
// limits of its scope, and limits of the scope over the configuration; Usage shows which are in force. In Shadow
// mode jobs are counted, and a reservation says what would have kept the job back; Off counts nothing.
//
// Each process decides by its own configuration, even if others have another, and charges every
// window that a scope key has in Redis.
//
// # Clock
//
// All instants are Redis' own, read once in each script. The local clock only
// measures sleeps and a Deadline's distance. Time in a window never goes back: if
// Redis' clock steps back by up to 30 s, a window's time stands still until the clock has
// caught up; after a larger step it goes on from where it stood.
//
// # Precision
//
// An exact limit keeps each start at its microsecond; by default limits of up to 100
// units are exact. Larger limits count in sub-windows of a hundredth of the window, which
// errs on the strict side: a start may count for one Precision too long.
//
// # Redis away
//
// While Redis is away, Reserve does what Options.Fallback says, and never waits longer than
// Options.Timeout. After some failures in a row Redis is left alone for a moment. The end of
// a caller's own context does not count as a failure, and no fallback answers for it.
// To be sure that a timeout ends a call at once, set ContextTimeoutEnabled on a
// redis.ClusterClient; a redis.Client needs no such option.
//
// # Observing
//
// Options.Observer receives decisions, fallbacks, calls to Redis, settlements, pauses, starts
// and put-backs; the package metrics has an observer for Prometheus.
//
// # From outside
//
// After its first answer, and every ten minutes from then on, a Throttle publishes its
// configuration in Redis. From it, Attach of the package inspect makes an Inspector, to inspect
// and to control the throttle; the command asynq-throttle is built on Attach. The Inspector's Processes and Check
// report processes that are configured differently; Settings and Changes report what is set at run time, and by whom.
//
// # Keys
//
// Every key of a throttle begins with thr:{name}:, so that all of them lie in one slot of a
// Redis Cluster. Each key has an expiry, except a key with limits or modes that SetLimits or SetMode have
// set without an end. docs/redis-state.md describes the keys.
package throttle
