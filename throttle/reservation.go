package throttle

import "time"

// Outcome is what was decided for a job.
type Outcome int

const (
	// Granted: the job is charged and starts at Start, at most its MaxWait away.
	Granted Outcome = iota + 1
	// Booked: the job has a slot at Start and is to be asked for again then.
	Booked
)

// String names the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Granted:
		return "granted"
	case Booked:
		return "booked"
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

// Reservation is the answer for one job. It is a value: nothing in it changes.
type Reservation struct {
	// Job is the job as it was asked for, with the Nonce that was used.
	Job Job
	// Outcome is Granted or Booked.
	Outcome Outcome
	// Start is the granted start or the booked slot, on Redis' clock.
	Start time.Time
	// Now is when it was decided, on Redis' clock.
	Now time.Time
	// Hold tells what kept the job from starting at once; nil if nothing did.
	Hold *Hold
	// Replayed is true when this very decision had been made before and its
	// answer lost: nothing was charged again.
	Replayed bool
	// Source tells whether Redis decided.
	Source Source
}

// Delay is how long after the answer the start is: 0 or more. It is what to
// sleep, whatever the local clock says.
func (r Reservation) Delay() time.Duration { return max(0, r.Start.Sub(r.Now)) }

// Hold is the limit that held a job back the longest.
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
}
