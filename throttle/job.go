package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Job is what a reservation is made for. It is a value; the throttle does not change
// its maps.
type Job struct {
	// ID names one attempt of a job among all jobs of the throttle: a job that asks again finds
	// its reservation by its ID. 1 to 1,024 bytes of any value.
	ID string
	// Weight is how many units the job takes of each limit: 1 to 2^53.
	Weight int64
	// Costs says, by the name of a scope, how many units the job takes of that scope's limits
	// where that is not the Weight: 0 to 2^53. A scope with a cost of 0 does not concern the job,
	// which then needs no key for it. nil means that every cost is the Weight.
	Costs map[string]int64
	// Keys gives the job's key in each keyed scope: {"tenant": "acme"}. Every scope that is
	// neither Global nor Optional must be there, with a key that is not empty. A waiting job
	// that asks again with other keys loses its position, and is decided like a new job.
	Keys map[string]string
	// Priority is 0, the highest, to LowestPriority. Among the waiting jobs of one key of the
	// fair scope a higher priority runs first; Options.PriorityFloor leaves some units to each
	// lower priority. A priority does not enlarge the key's share, and takes no slot from a job
	// that is booked already.
	Priority int
	// MaxWait is how long the caller is prepared to sleep until the start: a start within
	// MaxWait is granted now, for that later time. It is booked all the same if it is as far ahead as the
	// job's shortest window or lease, if other limits will be in force then, or if a running job may
	// still renew the lease whose end makes the room. 0 grants only a job that may start at once; at
	// most 400 days.
	MaxWait time.Duration
	// Deadline is the latest useful start, by the clock of this process. A job that cannot start
	// by then is refused with a *DeadlineError instead of booked. A job that asks after its
	// deadline, or whose slot lies after its deadline, is refused even if there is room, and
	// leaves the line. So a job in line must ask at its deadline, as it does under the package
	// worker. Zero means no deadline.
	Deadline time.Time
	// Plan books the job for later: even if there is room at once the job is booked, not granted,
	// and has to ask again at its slot. Driver.Pull returns the job when its slot is near. No fallback
	// grants a job with Plan.
	Plan bool
	// Bounded refuses the job with a *LineFullError, and writes nothing, if it would have to wait and
	// would make the line of one of its scope keys longer than Scope.MaxWaiting. A job that starts at
	// once, or that waits or is booked already, is not refused. Set it for a new job, before the job is
	// put into its queue: a job that its queue delivers has nowhere else to wait.
	Bounded bool
	// Nonce finds an answer that was lost, and serves for nothing else: a job that asks the same
	// Throttle again with the nonce of the *UnavailableError is not charged twice. An answer
	// that has arrived is not kept: a granted job that asks again starts again, and is charged
	// again, even with the same nonce. Up to 128 letters, digits, _ . or -. Empty means a
	// random nonce, which an *UnavailableError contains.
	Nonce string
}

// charge is what a job takes of one scope key.
type charge struct {
	scope *Scope
	key   string // as the job gave it
	name  string // of the scope key, as Redis has it
	units int64
}

// order checks a job and lists what it takes.
func (t *setup) order(ctx context.Context, job Job) (*order, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if err := t.checkNumbers(job); err != nil {
		return nil, err
	}
	if err := t.checkScopes(job); err != nil {
		return nil, err
	}
	o := &order{job: job, flow: wire.Encode(job.Keys[t.fair])}
	for i := range t.scopes {
		c, err := t.chargeOf(job, &t.scopes[i])
		if err != nil {
			return nil, err
		}
		if c.units > 0 {
			o.charges = append(o.charges, c)
		}
	}
	slices.SortFunc(o.charges, func(a, b charge) int { return strings.Compare(a.name, b.name) })
	o.lane = wire.LaneName(o.flow, job.Priority, o.names())
	return o, nil
}

// maxID is the longest ID, in bytes. It bounds how much Redis compares, keeps and returns in one call.
const maxID = 1024

// checkID refuses an ID that no job can have. The error shows only the beginning of an ID that is too long.
func checkID(id string) error {
	switch {
	case id == "":
		return &InvalidJobError{Field: "ID", Value: id, Reason: "is empty"}
	case len(id) > maxID:
		return &InvalidJobError{Job: id[:shownOfID], Field: "ID", Value: len(id),
			Reason: fmt.Sprintf("is more than %d bytes", maxID)}
	}
	return nil
}

// shownOfID is how much of an ID that is too long an error names.
const shownOfID = 64

func (t *setup) checkNumbers(job Job) error {
	if err := checkID(job.ID); err != nil {
		return err
	}
	switch {
	case job.Weight == 0:
		return &InvalidJobError{Job: job.ID, Field: "Weight", Value: job.Weight,
			Reason: fmt.Sprintf("is not between 1 and %d: "+
				"set it to the units that the job takes of each limit, such as 1", maxUnits)}
	case job.Weight < 1 || job.Weight > maxUnits:
		return &InvalidJobError{Job: job.ID, Field: "Weight", Value: job.Weight,
			Reason: fmt.Sprintf("is not between 1 and %d", maxUnits)}
	case job.Priority < 0 || job.Priority > LowestPriority:
		return &InvalidJobError{Job: job.ID, Field: "Priority", Value: job.Priority,
			Reason: fmt.Sprintf("is not between 0 and %d", LowestPriority)}
	case job.MaxWait < 0 || job.MaxWait > maxWindow:
		return &InvalidJobError{Job: job.ID, Field: "MaxWait", Value: job.MaxWait,
			Reason: "is not between 0 and " + wire.Duration(maxWindow)}
	case len(job.Nonce) > wire.MaxEncoded || !plainNonce(job.Nonce):
		return &InvalidJobError{Job: job.ID, Field: "Nonce", Value: job.Nonce,
			Reason: "is not up to 128 letters, digits, _ . or -"}
	}
	return nil
}

// checkScopes refuses names of scopes that the throttle does not have, and costs out of range.
func (t *setup) checkScopes(job Job) error {
	for name := range job.Keys {
		switch {
		case name == Global:
			return &InvalidJobError{Job: job.ID, Field: "Keys", Value: name, Reason: "has no keys: leave it out; " + t.keyed()}
		case !t.hasScope(name):
			return &InvalidJobError{Job: job.ID, Field: "Keys", Value: name,
				Reason: "names a scope this throttle does not have; " + t.keyed()}
		}
	}
	return t.checkCosts(job.ID, job.Costs)
}

func (t *setup) checkCosts(id string, costs map[string]int64) error {
	for name, cost := range costs {
		switch {
		case !t.hasScope(name):
			return &InvalidJobError{Job: id, Field: "Costs", Value: name,
				Reason: "names a scope this throttle does not have; there are: " + t.names(nil)}
		case cost < 0 || cost > maxUnits:
			return &InvalidJobError{Job: id, Field: "Costs", Value: cost,
				Reason: fmt.Sprintf("of scope %s is not between 0 and %d", name, maxUnits)}
		}
	}
	return nil
}

// chargeOf returns what a job takes of a scope: no units if the scope does not concern the job.
func (t *setup) chargeOf(job Job, scope *Scope) (charge, error) {
	key, named := job.Keys[scope.Name]
	cost, own := job.Costs[scope.Name]
	if !own {
		cost = job.Weight
	}
	switch {
	case named && key == "":
		return charge{}, &InvalidJobError{Job: job.ID, Field: "Keys", Value: scope.Name,
			Reason: "has an empty key for this scope: name one" + orOptional(scope)}
	case cost == 0:
		return charge{}, nil
	case named || scope.Name == Global:
		return charge{scope: scope, key: key, name: wire.ScopeKey(scope.Name, key), units: cost}, nil
	case scope.Optional:
		return charge{}, nil
	}
	return charge{}, &InvalidJobError{Job: job.ID, Field: "Keys", Value: scope.Name,
		Reason: "has no key for this scope: name one" + orOptional(scope) + "; " + t.keyed()}
}

// orOptional is the part of an error that says how a job need not have a key.
func orOptional(scope *Scope) string {
	if scope.Optional {
		return ", or leave the scope out"
	}
	return ", or make the scope Optional"
}

// keyed is the part of an error that names the scopes with keys.
func (t *setup) keyed() string {
	names := t.names(func(s Scope) bool { return s.Name != Global })
	if names == "" {
		return "this throttle has no scope with keys"
	}
	return "the scopes with keys are: " + names
}

// names returns the names of the chosen scopes, as text.
func (t *setup) names(which func(s Scope) bool) string {
	var names []string
	for _, s := range t.scopes {
		if which == nil || which(s) {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}

func plainNonce(nonce string) bool {
	for i := range len(nonce) {
		if !wire.IsSafe(nonce[i]) {
			return false
		}
	}
	return true
}

// withJob adds the job's ID and nonce to the error of a call that was not answered.
func withJob(err error, job Job) error {
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) {
		unavailable.Job, unavailable.Nonce = job.ID, job.Nonce
	}
	return err
}
