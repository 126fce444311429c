package throttle

import "time"

// Outcome is the decision about a job.
type Outcome int

const (
	// Granted: the job is charged and starts at Start, at most its MaxWait away.
	Granted Outcome = iota + 1
	// Booked: the job has a slot at Start. Ask again then, or up to its MaxWait before. If Start is nearer
	// than MaxWait, ask again at Start: the job has Plan, or only the time of its slot can tell whether it
	// starts, for example since a running job may renew its lease until then.
	Booked
	// Waiting: the job stands in line behind others. It need not ask again: a pull books it when
	// its turn has come.
	Waiting
)

// String names the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Granted:
		return "granted"
	case Booked:
		return "booked"
	case Waiting:
		return "waiting"
	}
	return "undecided"
}

// Reservation is the answer for one job. It is a value: nothing in it changes.
type Reservation struct {
	// Job is the job as it was given to Reserve. Of a job that a pull returns only the ID, the
	// Keys and the Priority are known.
	Job Job
	// Outcome is Granted, Booked or Waiting.
	Outcome Outcome
	// Start is the granted start or the booked slot, on Redis' clock; for a
	// waiting job, a guess of its start.
	Start time.Time
	// AskAgain is, for a waiting job, when to ask again if no pull has booked it: a guess that errs
	// on the late side, at most ten days, twice the Lookahead and ten seconds ahead. Otherwise zero.
	AskAgain time.Time
	// Ahead is, for a waiting job, how many jobs are before it in its lane; if it waited there
	// before this call, Ahead is an upper bound.
	Ahead int64
	// Lease is, for a granted job, how long it counts as running without a renewal: 0 if no
	// running limit concerns it. Call Throttle.Done when the job has ended, and Renew about three
	// times in a Lease until then.
	Lease time.Duration
	// Waited is, for a job that Redis granted, how long it waited from its arrival to Start: from
	// the first time that it was asked for, or planned. A lower charge gives turns back only to the
	// flow of a job that waited.
	Waited time.Duration
	// Cooldowns are, by scope, how long the job still counts as running after Done, at most a Lease. The throttle
	// leaves them nil, and Scope.Cooldown applies; a caller may set them to replace it.
	Cooldowns map[string]time.Duration
	// Uncharged are, for a granted job, the scopes that were Off: the job was not charged there,
	// and Settle corrects nothing there. If another process will settle the job, keep Job, Outcome, Start,
	// Waited, Uncharged, Source and, for a job that is Advanced, Advanced and Now.
	Uncharged []string
	// Now is when the job was decided, on Redis' clock; for a job that is Advanced, when its units were charged.
	Now time.Time
	// Hold is what kept the job from starting at once; nil if nothing did, or if a waiting job
	// waits only for its turn.
	Hold *Hold
	// Next is when to pull, on Redis' clock; zero if no job waits. Wait and the package worker
	// pull by themselves.
	Next time.Time
	// Replayed is true if this decision had been made before and its answer was lost: the job
	// was not charged again.
	Replayed bool
	// Advanced is true for a granted job that started without asking Redis, out of units that this process had
	// charged before: see Options.Advance.
	Advanced bool
	// Source is what decided. FallbackClosed, the zero value, means Redis, under the guarantee.
	// FallbackOpen or FallbackLocal means that this fallback granted the job, and that it was
	// not charged in Redis.
	Source Fallback
	// Shadow is, for a granted job, what would have kept it back if its scope were not in Shadow
	// mode, and until when, without Used and Booked; nil if nothing would have.
	Shadow *Hold

	// Lane names the lane that the job waits in or was booked from: jobs with the same scope keys
	// and priority have the same lane. It is empty if the Reservation is no answer of Redis.
	Lane string
}

// Delay returns the time from the answer to the start: 0 or more. Sleep for that long, whatever the local
// clock shows.
func (r Reservation) Delay() time.Duration {
	if r.Advanced { // Now was before the job came
		return 0
	}
	return max(0, r.Start.Sub(r.Now))
}

// decided returns when a job was granted, in microseconds, or the earliest time at which it can have been
// granted: in a replayed grant Now is later, and a caller that stored a grant may have lost Now.
func (r *Reservation) decided() int64 {
	if r.Advanced {
		return max(0, r.Now.UnixMicro())
	}
	earliest := max(0, r.Start.Add(-r.Job.MaxWait).UnixMicro())
	if r.Replayed || r.Now.After(r.Start) {
		return earliest
	}
	return max(earliest, r.Now.UnixMicro())
}

// ahead returns how long before its slot a booked job may ask again.
func (r Reservation) ahead() time.Duration {
	if r.Delay() <= r.Job.MaxWait {
		return 0
	}
	return r.Job.MaxWait
}

// Hold is the limit, or the pause, that keeps a job from starting.
type Hold struct {
	// Scope and Key name the scope key; Key is empty for Global.
	Scope, Key string
	// Limit is the limit that had no room. For a ramp it is the quota of the present step; before the ramp begins,
	// of its first step.
	Limit Limit
	// Used is how many units started in the window that ends now, or how many run. Booked is how
	// many are promised, including units that were granted for a later start.
	Used, Booked int64
	// Until is the first start with room in all limits; zero if there is none. For a waiting job it is a guess, as
	// Reservation.Start is.
	Until time.Time
	// Paused is true where the scope key is paused; there is no Limit then.
	Paused bool
}
