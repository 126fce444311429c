package throttle

import "time"

// Outcome is what was decided for a job.
type Outcome int

const (
	// Granted: the job is charged and starts at Start, at most its MaxWait away.
	Granted Outcome = iota + 1
	// Booked: the job has a slot at Start and is to be asked for again then, or up to its
	// MaxWait before. If that is nearer, a running limit has room at Start only if a lease is
	// not renewed until then: it is to be asked for then.
	Booked
	// Waiting: the job stands in line behind others. It needs not be asked for:
	// a pull books it when its turn has come.
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
	// Job is the job as it was asked for. Of a job that a pull brings only the ID and the
	// Keys are known.
	Job Job
	// Outcome is Granted, Booked or Waiting.
	Outcome Outcome
	// Start is the granted start or the booked slot, on Redis' clock; for a job
	// that waits in line a guess of its start.
	Start time.Time
	// Late is, for a job that waits in line, when to ask again if no pull has booked it:
	// a guess that errs on the late side, ten days ahead at most. Else zero.
	Late time.Time
	// Ahead is, for a job that waits in line, how many jobs are before it in its lane; of
	// one that waited there before, how many they are at most.
	Ahead int64
	// Lease is, for a granted job, how long it counts as running without a sign of life: 0
	// if no running limit concerns it. Tell with Throttle.Done that it has ended, and Renew
	// it about three times in a Lease until then.
	Lease time.Duration
	// Cooldowns are, by scope, for how long after Done the job still counts as running, as
	// a caller may set it in place of Scope.Cooldown: a Lease at most.
	Cooldowns map[string]time.Duration
	// Uncharged are, for a granted job, the scopes that were Off: nothing was charged there,
	// and Settle corrects nothing there. Keep it with Job and Start if another process is to
	// settle.
	Uncharged []string
	// Now is when it was decided, on Redis' clock.
	Now time.Time
	// Hold tells what kept the job from starting at once; nil if nothing did, or if
	// a job in line waits for nothing but its turn.
	Hold *Hold
	// Next is when the line is to be pulled, on Redis' clock; zero if nothing waits.
	// Wait and the package worker do that by themselves.
	Next time.Time
	// Replayed is true when this very decision had been made before and its
	// answer lost: nothing was charged again.
	Replayed bool
	// Source tells who decided: Redis, under the guarantee, where it is
	// FallbackClosed, the zero value. With FallbackOpen or FallbackLocal that fallback
	// granted the job, and nothing was charged in Redis.
	Source Fallback
	// Shadow tells, for a granted job, what would have kept it back if its scope were
	// not in Shadow mode, and until when; nil if nothing would.
	Shadow *Hold

	lane string
}

// Delay is how long after the answer the start is: 0 or more. It is what to
// sleep, whatever the local clock says.
func (r Reservation) Delay() time.Duration { return max(0, r.Start.Sub(r.Now)) }

// decided is when a job was granted, in microseconds, or the earliest that it can have been:
// Now is later in a grant that was replayed, and may be missing in one that was written down.
func (r *Reservation) decided() int64 {
	earliest := max(0, r.Start.Add(-r.Job.MaxWait).UnixMicro())
	if r.Replayed || r.Now.After(r.Start) {
		return earliest
	}
	return max(earliest, r.Now.UnixMicro())
}

// ahead is how long before its slot a booked job may be asked for.
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
	// Limit is the limit that had no room.
	Limit Limit
	// Used is how many units the window ending now holds, or how many run; Booked is how many are promised,
	// with those granted for later.
	Used, Booked int64
	// Until is the first start with room in all limits; zero if there is none.
	Until time.Time
	// Paused is true where the scope key is paused; there is no Limit then.
	Paused bool
}
