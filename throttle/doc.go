// Package throttle shapes work under sliding-window quotas kept in Redis. It
// delays, it does not drop: a job that finds no room gets a slot, the earliest
// start at which all its windows have room, and asks again then.
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
// of the jobs whose granted start lies in it sum to at most Units: with any number
// of processes, with late jobs, retries and lost answers. A job is charged to all
// its limits or to none, by one script, in one round trip.
//
// For every running limit, at no instant of Redis' clock do the weights of the jobs that run
// sum to more than Units: from their granted starts until Done and their cool-down, or until
// a Lease after they were last renewed, up to a thousandth of it longer.
//
// What the throttle cannot promise:
//
//   - What Redis loses (a failover, a restart without persistence) is forgotten.
//   - The time between a grant and the job's first effect is not seen: see Scope.Margin.
//   - A charge that Settle raises after the fact, or a limit that is lowered, can leave a
//     window that holds more.
//   - A window or a precision that is new to a scope key counts from when it is first
//     asked for. A new number of units for the same window counts at once.
//   - A job that runs on after its Lease is not counted.
//   - With FallbackOpen and FallbackLocal jobs run that Redis did not count.
//
// # Costs
//
// A job takes its Weight of each limit that concerns it, or what Job.Costs says for the
// limits of a scope: one message of many recipients, say, counts as one connection and
// as many mails.
//
// # Bookings
//
// A booking keeps its units from newcomers, which are placed around it: a light job may fill
// a gap before the booking, but no newcomer moves it to a later time. When the job asks at its slot,
// only units that have really started count. A job that comes after its slot may use what is
// free then, or goes back to the front of its lane. A booking whose job does not come stops
// counting Options.Grace after its slot.
//
// # Line
//
// Jobs are booked as far ahead as Options.Lookahead. The others wait in lanes, one for each
// distinct set of scope keys and each priority, in order of arrival. A lane stands under the
// one scope key that has no room for its first job, with the other lanes that wait for that
// key. There the keys of Options.FairScope take turns in units, by their shares; among the jobs
// of one key, a higher Job.Priority comes first. A pull books the jobs whose turn has come.
// The package worker and Wait pull; a program with a queue of its own uses a Driver.
//
// # Lost answers
//
// The jobs of a process that come at the same time are decided together. After a call whose
// answer was lost, the throttle first asks Redis what became of the call. If it was decided, a job
// that asks again with the Nonce of the error gets the grant of that call, if the grant is still of
// use; otherwise the grant is given back and the job is decided anew. If the call was not
// decided, it never will be: the job may have run elsewhere in the meantime.
//
// # Settling
//
// A job is charged its Weight. Settle corrects the charge to what the job really took, in place
// at its start, in all limits, once for each grant; Refund corrects it to nothing. Units that
// were not taken are free at once. Units beyond the charge may overfill a window after the
// fact; then no job starts until the window is under its limit.
//
// # What runs at once
//
// Running limits what runs at once, beside the windows of its scope: at most one such limit in
// each scope. A job that is granted under it occupies its places until Done is called, or until
// the Lease in its Reservation is over: call Renew about three times in a Lease while it runs.
// The package worker calls both. Jobs wait for places in line, as they do for windows, and a pull
// is due when a place is given back. Settle and Refund leave places alone.
//
// # Pausing
//
// Pause closes a scope key until a time, for all processes, also in a scope without limits;
// Resume opens it. A job of that key gets a slot after the pause. Other jobs are not delayed.
//
// # Limits that follow the upstream
//
// With a Scope.Floor the limits of the scope's keys follow what their upstream says. Report lowers
// the served share of the limits at a refusal or by headers, and raises it by answers, for all
// processes. The limits themselves are never exceeded.
//
// # Limits and modes at run time
//
// Limits and modes that SetLimits and SetMode set are kept in Redis and are in force for every
// process from its next decision on, until ResetLimits and ResetMode. Limits of a key win over
// limits of its scope, and these over the configuration; Usage shows which are in force. In Shadow
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
// redis.ClusterClient; a redis.Client needs nothing.
//
// # Observing
//
// Options.Observer receives decisions, fallbacks, calls to Redis, settlements, pauses, starts
// and put-backs; the package metrics has one for Prometheus.
//
// # From outside
//
// After its first answer, and every ten minutes from then on, a Throttle publishes its
// configuration in Redis. Attach returns an Inspector made from that, to inspect and to
// control; the command asynq-throttle is built on it. Processes and Check report processes
// that are configured differently, Settings and Changes what is set at run time and by whom.
//
// # Keys
//
// Every key of a throttle begins with thr:{name}:, so that all of them lie in one slot of a
// Redis Cluster. Each has an expiry, except what SetLimits and SetMode have set without an
// end. docs/redis-state.md describes them.
package throttle
