package throttle

import (
	"fmt"
	"math"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Global is the name of the scope that every job of a throttle belongs to. It
// has one key, which jobs do not name.
const Global = "global"

// Scope is what limits are counted over: all jobs (the scope named Global), or
// the jobs that share a key, such as a tenant, a domain or a host.
type Scope struct {
	// Name is Global or a name of your own: 1 to 64 of A-Z a-z 0-9 _ . -
	Name string `json:"name"`
	// Limits hold for each key of the scope by itself. All of them hold at
	// once; no two may have the same window or calendar, and at most one may be a
	// running limit, and one Hours. None means that the scope limits nothing.
	Limits []Limit `json:"limits,omitempty"`
	// Optional lets jobs come without a key of this scope; its limits then do
	// not apply to them. Otherwise a job that names no key is refused, so that
	// a forgotten key cannot lift a limit. Global needs no key either way.
	Optional bool `json:"optional,omitempty"`
	// Cooldown is how long a job that has ended still occupies its place under a running limit, such
	// as for a pause between two connections to a host. From 0, which is none, to the limit's Lease;
	// it errs by up to a thousandth of the Lease, on the long side. FallbackLocal has no cool-down.
	Cooldown time.Duration `json:"cooldown,omitempty"`
	// Runs is about how long a job runs under a running limit. It serves only for estimates: those
	// of Forecast and Explain, and of when a job in line starts. 0 means the mean of the jobs that
	// this process has ended. Before the first has ended, Forecast and Explain assume that a place
	// is always free, and err on the early side.
	Runs time.Duration `json:"runs,omitempty"`
	// Floor lets the limits of the scope's keys follow their upstream, whose answers
	// Throttle.Report reports. It is the lowest served share: 0.1 is a tenth of the limits. It
	// counts in thousandths, from 0.001 to below 1; 0 means that the limits do not follow. A job
	// that weighs more than the served share starts when no other units count.
	Floor float64 `json:"floor,omitempty"`
	// Margin is how much longer each window counts than its limit says. A strict upstream counts
	// a request when it arrives, which is later than the granted start: if no request arrives more
	// than Margin after its start, no more than Units arrive in any interval of Window. It costs
	// Margin/(Window+Margin) of the throughput: 0.3 % for 200 ms of a minute, 17 % of a second.
	// From 0, which is none, to a minute, in whole microseconds; Window and Margin together are
	// at most 400 days. Usage and Explain show the limit as it is entered. Margin does not apply
	// to running limits and quotas. A window with another margin is a new window: it counts from when it is
	// first asked for, and limits that were set at run time must be set again.
	Margin time.Duration `json:"margin,omitempty"`
	// MaxWaiting bounds the length of the line of each key. In mode Enforce, a Bounded job that would make
	// the line longer is refused with a *LineFullError; package worker's Client makes each task that it
	// enqueues Bounded. The zero value means no bound, and so does 0 in one of its fields.
	//
	// The length counts the jobs that wait or are booked and have not started, also jobs that are not
	// Bounded; these are never refused. A process with a MaxWaiting in any scope counts its jobs, in every
	// scope; the jobs of other processes count in no line. Each process refuses by its own MaxWaiting. A
	// lower one takes no job out of line.
	MaxWaiting Length `json:"max_waiting,omitzero"`
	// Mode is the mode of the scope: the weaker of this and Options.Mode is in force,
	// unless SetMode sets another at run time. The zero value is Enforce.
	Mode Mode `json:"mode"`
}

// maxMargin is the longest Margin.
const maxMargin = time.Minute

// counted returns a limit of the scope as the scripts count it. A window is longer by the margin.
func (s Scope) counted(l Limit) line.Limit {
	return line.Limit{Units: l.Units, Span: l.span(s.Margin), Precision: l.precision().Microseconds(), Ramp: l.steps()}
}

// maxLimits bounds the work of one decision: the limits that concern one job.
const maxLimits = 64

func validateScopes(scopes []Scope, lookahead time.Duration) error {
	if len(scopes) == 0 {
		return &OptionError{Field: "scopes", Value: 0, Reason: "a throttle needs at least one scope"}
	}
	names := make(map[string]bool)
	limits := 0
	for _, scope := range scopes {
		if !wire.IsName(scope.Name) {
			return &OptionError{Field: "Scope.Name", Value: scope.Name, Reason: "want 1 to 64 of A-Z a-z 0-9 _ . -"}
		}
		if names[scope.Name] {
			return &OptionError{Field: "Scope.Name", Value: scope.Name, Reason: "this scope is there twice"}
		}
		names[scope.Name] = true
		if !scope.Mode.valid() {
			return &OptionError{Field: "Scope.Mode", Value: int(scope.Mode), Reason: "is none of Enforce, Shadow, Off"}
		}
		if scope.Cooldown < 0 || scope.Cooldown > maxLease || scope.Cooldown%time.Microsecond != 0 {
			return &OptionError{Field: "Scope.Cooldown", Value: scope.Cooldown,
				Reason: "is not between 0 and " + wire.Duration(maxLease) + ", in whole microseconds"}
		}
		if part := inThousandths(scope.Floor); scope.Floor != 0 &&
			(scope.Floor < 0 || part < 1 || part >= thousandths) || scope.Floor != scope.Floor {
			return &OptionError{Field: "Scope.Floor", Value: scope.Floor,
				Reason: "is neither 0 nor a part of the limits, from 0.001 to below 1"}
		}
		if scope.Margin < 0 || scope.Margin > maxMargin || scope.Margin%time.Microsecond != 0 {
			return &OptionError{Field: "Scope.Margin", Value: scope.Margin,
				Reason: "is not between 0 and " + wire.Duration(maxMargin) + ", in whole microseconds"}
		}
		if scope.Runs < 0 || scope.Runs > maxWindow {
			return &OptionError{Field: "Scope.Runs", Value: scope.Runs,
				Reason: "is not between 0 and " + wire.Duration(maxWindow)}
		}
		if most := scope.MaxWaiting; min(most.Jobs, most.Units) < 0 || max(most.Jobs, most.Units) > maxUnits {
			return &OptionError{Field: "Scope.MaxWaiting", Value: most,
				Reason: fmt.Sprintf("is not between 0, which is no bound, and %d", maxUnits)}
		}
		if err := scope.validateLimits(); err != nil {
			return err
		}
		if err := checkLeases(scope.Name, scope.Limits, lookahead); err != nil {
			return err
		}
		limits += len(scope.Limits)
	}
	if limits > maxLimits {
		return &OptionError{Field: "Scope.Limits", Value: limits,
			Reason: fmt.Sprintf("more than %d limits in all", maxLimits)}
	}
	return nil
}

func (s Scope) validateLimits() error {
	labels := make(map[string]bool)
	for _, limit := range s.Limits {
		if err := limit.validate(); err != nil {
			return fmt.Errorf("throttle: scope %s: %w", s.Name, err)
		}
		if limit.Window+s.Margin > maxWindow {
			return &OptionError{Field: "Scope.Margin", Value: s.Margin,
				Reason: "makes the window of " + limit.String() + " longer than " + wire.Duration(maxWindow)}
		}
		if labels[limit.Label()] {
			return &OptionError{Field: "Scope.Limits", Value: limit.String(),
				Reason: "scope " + s.Name + " has two limits of this kind; keep the lower one"}
		}
		labels[limit.Label()] = true
		if limit.Running && s.Cooldown > limit.lease() {
			return &OptionError{Field: "Scope.Cooldown", Value: s.Cooldown,
				Reason: "is longer than the lease " + wire.Duration(limit.lease()) + " of scope " + s.Name}
		}
	}
	return nil
}

// checkLeases refuses leases of less than twice the lookahead: jobs would be booked to start when a
// lease ends, although a place may be given back earlier.
func checkLeases(scope string, limits []Limit, lookahead time.Duration) error {
	for _, limit := range limits {
		if limit.Running && limit.lease() < 2*lookahead {
			return &LimitError{Text: limit.String(),
				Reason: fmt.Sprintf("of scope %s: the lease %s is shorter than twice the Lookahead %s", scope,
					wire.Duration(limit.lease()), wire.Duration(lookahead))}
		}
	}
	return nil
}

func copyScopes(scopes []Scope) []Scope {
	copied := make([]Scope, len(scopes))
	for i, scope := range scopes {
		copied[i] = scope
		copied[i].Limits = append([]Limit(nil), scope.Limits...)
	}
	return copied
}

// thousandths is the unit in which the scripts count served shares.
const thousandths = wire.Thousandths

func inThousandths(part float64) int64 { return int64(math.Round(part * thousandths)) }
