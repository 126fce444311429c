// Package throttle shapes work under sliding-window quotas kept in Redis. It
// delays, it does not drop: a job that finds no room gets a slot, the earliest
// start at which all its windows have room, and is to be asked for again then.
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
// What it cannot promise: what Redis loses (a failover, a restart without
// persistence) is forgotten; between a grant and the job's first effect time
// passes that it does not see; a charge that Settle raises after the fact, or a limit
// that is lowered, leaves a window that holds more; a window or a precision that is
// new to a scope key counts from when it is first asked for, while other units of the
// same window count at once; a job that runs on after its Lease is not counted; with
// FallbackOpen and FallbackLocal jobs run that Redis did not count.
//
// # Costs
//
// A job takes its Weight of each limit that concerns it, or what Job.Costs says for the
// limits of a scope: one message of many recipients, say, counts as one connection and
// as many mails.
//
// # Bookings
//
// A booking keeps its units from newcomers, who are placed around it: a light
// job may fill a hole before it, nobody moves it later. At its slot what really
// started decides. A job that comes after its slot may use what is free then, or
// goes back to the front of its lane. One that never comes back stops counting
// Options.Grace after its slot.
//
// # Line
//
// Bookings go as far ahead as Options.Lookahead. Behind it jobs wait in lanes, one for
// each distinct set of scope keys and each priority, in order of arrival. A lane stands
// under the one scope key that has no room for its first job, with the lanes of others
// that wait for the same; there the keys of Options.FairScope take turns in units, by
// their shares, and of one key's jobs those of a higher Job.Priority come first. A pull
// books the jobs whose turn has come; the package worker and Wait do that, and a Driver
// is for who brings the jobs of another queue.
//
// # Lost answers
//
// The jobs of a process that come at the same time are decided together. After a call
// whose answer was lost Redis is asked what became of it, before anything else. If it was
// decided, who asks again with the Nonce of the error has what was granted then, if that
// is still of use; otherwise that is given back and the job is decided anew. If it was
// not, it never will be: the job may have run elsewhere.
//
// # Settling
//
// A job is charged its Weight. Settle corrects that to what it really took, in place
// at its start, in all limits, once for each grant; Refund to nothing. Less is free at
// once. More is a debt: it may overfill a window after the fact, and then nobody starts
// until the window is under its limit.
//
// # What runs at once
//
// Running limits what runs, beside the windows of its scope: at most one in each. Who is
// granted a start under it has its Lease in the Reservation, tells Done when the job has
// ended, and Renew about three times in a Lease until then; the package worker does both. What
// waits stands in line as it does for windows, and is looked at when a place is given back.
// Settle and Refund leave places alone.
//
// # Pausing
//
// Pause closes a scope key until a time, for all processes, also one of a scope without
// limits; Resume opens it. A job that it concerns is placed from its end on. Others are
// not delayed.
//
// # Limits that follow the upstream
//
// With a Scope.Floor the limits of its keys follow what their upstream says: Report lowers
// the part of them that is served at a refusal or by headers, and raises it by answers, for
// all processes. The limits themselves are never exceeded. An Estimator learns from
// settlements what jobs take, so that their weights need not be guessed.
//
// # Limits and modes at run time
//
// SetLimits and SetMode are kept in Redis and in force for every process with its next
// decision, until ResetLimits and ResetMode. Limits of a key win over those of its
// scope, those over the configuration; Usage shows what holds. In Shadow jobs are counted,
// and a reservation says what would have kept the job back; Off counts nothing.
//
// Processes with different configurations decide each by its own, and charge every
// window that a scope key has in Redis.
//
// # Clock
//
// All instants are Redis' own, read once in each script. The local clock only
// measures sleeps and a Deadline's distance. Time in a window never goes back: where
// Redis' clock steps back by up to 30 s, it stands still until the clock has caught up;
// after a larger step it goes on from where it stood.
//
// # Precision
//
// An exact limit keeps each start at its microsecond; by default up to 100 units
// are. Larger limits count in sub-windows of a hundredth of the window, which
// errs on the strict side: a start may count for one Precision too long.
//
// # Redis away
//
// Reserve then does what Options.Fallback says, and never waits longer than
// Options.Timeout. After some failures in a row Redis is left alone for a moment. That a
// caller's own context ends is no such failure, and no fallback answers for it.
// To be sure that a timeout ends a call at once, set ContextTimeoutEnabled on a
// redis.ClusterClient; a redis.Client needs nothing.
//
// # Observing
//
// Options.Observer hears of decisions, fallbacks, calls to Redis, settlements,
// pauses, starts and put-backs; the package metrics is one for Prometheus.
//
// # From outside
//
// After its first answer and every ten minutes then a Throttle publishes how it is
// configured, beside the decisions; Attach opens a throttle from that, to look and to
// control, and the command asynq-throttle is built on it. Processes and Check tell which
// are configured differently, Settings and Changes what is set at run time and by whom.
//
// # Keys
//
// Every key of a throttle begins with thr:{name}:, so that all of them lie in one
// slot of a Redis Cluster, and has an expiry, but for what SetLimits and SetMode have
// set. docs/redis-state.md describes them.
package throttle
