package throttle

import (
	"fmt"
	"time"
)

// Job is what a reservation is made for.
type Job struct {
	// ID names this job among all jobs of the throttle, one attempt of it: the
	// reservation is found again by it. 1 byte or more; bytes of any value.
	ID string
	// Weight is how many units the job takes of each limit: 1 to MaxUnits.
	Weight int64
	// Keys gives the job's key in each keyed scope: {"tenant": "acme"}. Every
	// scope that is neither Global nor Optional must be there, with a key that
	// is not empty.
	Keys map[string]string
	// Lane stands for Keys in the jobs that Pull and Sweep return, for Cancel.
	// Leave it empty.
	Lane Lane
	// MaxWait is how long the caller is ready to wait in place: a start within
	// it is granted now, for then. 0 grants only what may start at once.
	MaxWait time.Duration
	// Deadline is the latest useful start. A job that cannot start by then is
	// refused with a *DeadlineError instead of booked. Zero means none.
	Deadline time.Time
	// Plan makes a plan for later: where there is room at once the job is booked, not
	// granted, and is to be asked for again.
	Plan bool
	// Nonce names this asking for a decision. Asked again with the same nonce
	// (because the answer was lost), a granted job is not charged again. Empty
	// draws a new one, which the Reservation and an *UnavailableError tell.
	Nonce string
}

// meets is one scope key that a job is counted under.
type meets struct {
	scope        *Scope
	key, encoded string
	belief       string // what is taken to be set for it at run time
	origin       Origin
	mode         Mode
	inForce      []Limit
	rulings      []ruling // what is counted for it
}

// name names the scope key as the control key does.
func (m *meets) name() string { return m.scope.Name + ":" + m.encoded }

// meetings checks the job and lists the scope keys it is counted under.
func (t *Throttle) meetings(job Job) ([]meets, error) {
	switch {
	case job.ID == "":
		return nil, &InvalidJobError{Field: "ID", Value: job.ID, Reason: "is empty"}
	case job.Weight < 1 || job.Weight > MaxUnits:
		return nil, &InvalidJobError{Job: job.ID, Field: "Weight", Value: job.Weight, Reason: fmt.Sprintf("is not between 1 and %d", MaxUnits)}
	case job.MaxWait < 0 || job.MaxWait > MaxWindow:
		return nil, &InvalidJobError{Job: job.ID, Field: "MaxWait", Value: job.MaxWait, Reason: "is not between 0 and " + formatDuration(MaxWindow)}
	case len(job.Nonce) > maxEncoded || !plainNonce(job.Nonce):
		return nil, &InvalidJobError{Job: job.ID, Field: "Nonce", Value: job.Nonce, Reason: "is not up to 128 letters, digits, _ . or -"}
	}
	if job.Lane != "" {
		return t.meetingsOf(job.Lane)
	}
	for name := range job.Keys {
		if _, known := t.keyed[name]; !known {
			return nil, &InvalidJobError{Job: job.ID, Field: "Keys", Value: name, Reason: "names a scope this throttle does not have"}
		}
	}
	met := make([]meets, 0, len(t.scopes))
	for i := range t.scopes {
		scope := &t.scopes[i]
		key, named := job.Keys[scope.Name]
		switch {
		case scope.Name == Global:
			key = ""
		case named && key == "":
			return nil, &InvalidJobError{Job: job.ID, Field: "Keys", Value: scope.Name, Reason: "has an empty key for this scope"}
		case !named && scope.Optional:
			continue
		case !named:
			return nil, &InvalidJobError{Job: job.ID, Field: "Keys", Value: scope.Name, Reason: "has no key for this scope"}
		}
		met = append(met, meets{scope: scope, key: key, encoded: encode(key)})
	}
	return met, nil
}

// fits refuses a weight that no window can ever hold. Where that is so since limits
// were set at run time, it may become different: the job is only blocked, and under
// a limit of 0, which is like a pause, it waits in line.
func (c *call) fits() error {
	for i := range c.met {
		m := &c.met[i]
		for _, r := range m.rulings {
			switch {
			case r.free() || c.job.Weight <= r.limit.Units:
			case m.origin == FromConfiguration:
				return &NeverFitsError{Job: c.job.ID, Weight: c.job.Weight, Scope: m.scope.Name, Key: m.key, Limit: r.limit}
			case r.limit.Units > 0:
				return &BlockedError{Job: c.job.ID, Weight: c.job.Weight, Scope: m.scope.Name, Key: m.key, Limit: r.limit}
			}
		}
	}
	return nil
}

func plainNonce(nonce string) bool {
	for i := range len(nonce) {
		if !safeByte(nonce[i]) {
			return false
		}
	}
	return true
}
