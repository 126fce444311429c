package throttle

import "time"

// Outcome is what was decided for a job.
type Outcome int

const (
	// Granted: the job is charged and starts at Start, at most its MaxWait away.
	Granted Outcome = iota + 1
	// Booked: the job has a slot at Start and is to be asked for again then.
	Booked
	// Waiting: the job stands in line behind others. It needs not be asked for:
	// Pull books it when its turn has come.
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

// Source tells who decided.
type Source int

const (
	// FromRedis: decided by Redis, under the guarantee.
	FromRedis Source = iota
	// FromOpen: Redis could not answer and the throttle lets jobs run
	// unchecked (FallbackOpen). Nothing was charged.
	FromOpen
	// FromLocal: Redis could not answer and this process' own share had room
	// (FallbackLocal). Nothing was charged in Redis.
	FromLocal
)

// String names the source in lower case: redis, open or local.
func (s Source) String() string {
	switch s {
	case FromRedis:
		return "redis"
	case FromOpen:
		return "open"
	case FromLocal:
		return "local"
	}
	return "unknown"
}

// Reservation is the answer for one job. It is a value: nothing in it changes.
type Reservation struct {
	// Job is the job as it was asked for, with the Nonce that was used.
	Job Job
	// Outcome is Granted, Booked or Waiting.
	Outcome Outcome
	// Start is the granted start or the booked slot, on Redis' clock; for a job
	// that waits in line the best guess of its start.
	Start time.Time
	// Late is, for a job that waits in line, when to ask again if nobody has said
	// that it was booked: a guess that errs on the late side. Else zero.
	Late time.Time
	// Ahead is, for a job that waits in line, how many units are before it in its
	// lane: counted when it joins, at the lane's mean weight when it asks again.
	Ahead int64
	// Now is when it was decided, on Redis' clock.
	Now time.Time
	// Hold tells what kept the job from starting at once; nil if nothing did.
	Hold *Hold
	// Next is a lane that may be pulled now (see Throttle.Pull); empty if none.
	Next Lane
	// Replayed is true when this very decision had been made before and its
	// answer lost: nothing was charged again.
	Replayed bool
	// Source tells whether Redis decided.
	Source Source
	// Shadow tells, for a granted job, what would have held it back if it were not
	// in Shadow mode, and until when; nil if nothing would.
	Shadow *Hold
	// Ledgers names what a granted job was charged to, for Settle, also where that
	// is done by another process.
	Ledgers string
}

// Delay is how long after the answer the start is: 0 or more. It is what to
// sleep, whatever the local clock says.
func (r Reservation) Delay() time.Duration { return max(0, r.Start.Sub(r.Now)) }

// Hold is the limit, or the pause, that holds a job back the longest.
type Hold struct {
	// Scope and Key name the ledger's scope key; Key is empty for Global.
	Scope, Key string
	// Limit is the limit that had no room.
	Limit Limit
	// Used is how many units the window ending now holds, with those granted
	// for the near future; Booked is how many are promised.
	Used, Booked int64
	// Until is the first start with room in all limits: the Start.
	Until time.Time
	// Paused is true where the scope key is paused; there is no Limit then.
	Paused bool
	// Share is true where a job waits in line because its fair key has only its
	// share of the limit, which others want too.
	Share bool
}
