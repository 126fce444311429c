package throttle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Fallback is what Reserve does while Redis cannot decide: if it refuses connections, does not answer in time, is a
// read-only replica, is out of memory, moves the throttle's slot, or for any other reason that UnavailableError.Failure
// names.
type Fallback int

const (
	// FallbackClosed answers with an *UnavailableError: nothing starts. It is
	// the default, since a limit is then never exceeded.
	FallbackClosed Fallback = iota
	// FallbackOpen grants every job at once, unchecked and uncharged; a job that is only planned gets
	// an *UnavailableError.
	FallbackOpen
	// FallbackLocal grants what fits into this process' own share of the limits, Options.LocalShare.
	// Other jobs, and those that are only planned, get an *UnavailableError.
	FallbackLocal
)

// String names the fallback in lower case: closed, open or local.
func (f Fallback) String() string {
	switch f {
	case FallbackClosed:
		return "closed"
	case FallbackOpen:
		return "open"
	case FallbackLocal:
		return "local"
	}
	return "unknown"
}

// The defaults of Options.
const (
	defaultTimeout       = 250 * time.Millisecond
	defaultGrace         = 5 * time.Second
	defaultLookahead     = time.Second
	defaultFairScope     = "tenant"
	defaultSettleWithin  = time.Hour
	defaultBreakAfter    = 5
	defaultBreakPeriod   = 500 * time.Millisecond
	defaultPriorityFloor = 0.1
)

// The bounds of Options.
const (
	leastPriorityFloor = 0.01
	longestAdvance     = time.Second
	maxShare           = 1_000_000 // of a key of the fair scope
)

// Options are the settings of a Throttle that have a default. The zero value
// and nil both mean all defaults.
type Options struct {
	// Fallback is what to do while Redis cannot answer. Default FallbackClosed.
	Fallback Fallback
	// LocalShare is the part of each limit that this process may use by itself under
	// FallbackLocal, above 0 and up to 1: with four processes, use 0.25. FallbackLocal needs it;
	// otherwise it is not read.
	LocalShare float64
	// Timeout bounds each call to Redis, whatever the client's own timeouts
	// are, and how long Reserve waits for its answer. 0 means 250 ms; 1 ms to a minute.
	Timeout time.Duration
	// Grace is how long after its slot a booking still counts if its job has not come: long
	// enough for the lateness of a queue, short enough that deleted jobs do not keep room from
	// others. A job of the same lane may take over the slot before that, from 0.1 s after the slot on.
	// 0 means 5 s; 1 ms to a day. All processes of one throttle must use the same.
	Grace time.Duration
	// Lookahead is how far ahead jobs are booked; jobs that would start later wait in line. It must
	// be long enough for a booked job to be delivered in time, by another process if its own has
	// died. With a longer Lookahead, newcomers wait for more bookings and each decision reads
	// more of them; the shares do not change. 0 means 1 s; 100 ms to 400 days.
	Lookahead time.Duration
	// FairScope is the keyed scope whose keys each have a share of every limit under
	// which several of them wait. Empty means "tenant" if there is such a scope. With
	// Global, or without such a scope, all jobs are one flow: of jobs with the same priority that wait for
	// the same scope key, the first to come is the first to start.
	FairScope string
	// Shares are the shares of keys of the fair scope: a key with 3 starts three units while a key
	// with 1 starts one. 1 to 1,000,000; a key that is not in Shares has 1, or what Share returns.
	Shares map[string]int
	// Share returns the share of a key that Shares does not have. It is called often and by several
	// goroutines. Less than 1 counts as 1, more than 1,000,000 as 1,000,000. A panic is logged, and
	// the share is 1. It is not called for keys longer than about 128 bytes: Redis stores only
	// their hash.
	Share func(key string) int
	// FairByTime divides the places of running limits by units times the seconds for which jobs
	// occupy them, so that a key with long jobs does not get more of them than a key with short
	// jobs. Otherwise units are counted at their start, as under windows. A job is charged for a
	// second at its start, and for the rest when it is renewed and when it has ended.
	FairByTime bool
	// PriorityFloor is the part of a flow's units that jobs of a lower Priority keep while jobs of
	// the next higher Priority wait too: 0.01 to 0.5, rounded so that a whole number of units of the
	// higher priority starts for each unit of the lower one. 0 means 0.1, nine units to one. All
	// processes of one throttle should use the same value.
	PriorityFloor float64
	// Mode is the mode of all scopes: the weaker of this and Scope.Mode is in force, unless SetMode
	// sets another at run time. Every decision asks Redis even in mode Off, since Redis knows whether
	// another mode was set.
	Mode Mode
	// Advance saves calls: a job of a busy lane is also charged for jobs of that lane that are likely to come soon, and
	// for at most Advance these start without asking Redis. 0 means that each job asks; 5 ms to a second. Limits hold
	// as without it. A pause, a limit or a mode that another process sets acts here up to Advance later, and a step of
	// Redis' clock forward is noticed up to Advance later. Charged units that no job takes count as started: a few
	// hundredths of what a busy lane starts. There is no advance while any job of the throttle waits or is booked, for a
	// job with Costs or a Deadline, under running limits, and under windows whose sub-windows are too short: exact ones,
	// as limits of up to 100 units are by default, and those of less than some seconds. Such a job asks.
	Advance time.Duration
	// SettleWithin is how long after its start a granted job may be settled; Redis keeps each settlement
	// for that long. 0 means an hour; a minute to 400 days.
	SettleWithin time.Duration
	// BreakAfter is how many calls in a row must fail before Redis is left alone for BreakPeriod.
	// 0 means 5; a negative number means never.
	BreakAfter int
	// BreakPeriod is how long Redis is left alone before one call tries again.
	// 0 means 500 ms; 1 ms to an hour.
	BreakPeriod time.Duration
	// Observer receives every event. nil means none, and costs nothing.
	Observer Observer
	// Logger receives what an operator should know: at level warn, such as fallbacks; at error a panic of the Observer
	// or of Share; at info what a limit in mode Shadow would have delayed. It receives at most one entry a second of
	// each kind. nil writes warnings and errors to standard error, as asynq and go-redis do; zap.NewNop() writes
	// nothing.
	Logger *zap.Logger
}

// withDefaults returns a checked copy with the defaults filled in.
func (o *Options) withDefaults() (Options, error) {
	var options Options
	if o != nil {
		options = *o
		options.Shares = maps.Clone(o.Shares) // publishing reads them later
	}
	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	options.Grace = cmp.Or(options.Grace, defaultGrace)
	options.PriorityFloor = cmp.Or(options.PriorityFloor, defaultPriorityFloor)
	options.Lookahead = cmp.Or(options.Lookahead, defaultLookahead)
	options.SettleWithin = cmp.Or(options.SettleWithin, defaultSettleWithin)
	options.BreakAfter = cmp.Or(options.BreakAfter, defaultBreakAfter)
	options.BreakPeriod = cmp.Or(options.BreakPeriod, defaultBreakPeriod)
	if options.Logger == nil {
		options.Logger = toStandardError()
	}
	return options.guarded(), options.validate()
}

func (o Options) validate() error {
	switch {
	case o.Fallback < FallbackClosed || o.Fallback > FallbackLocal:
		return &OptionError{Field: "Fallback", Value: int(o.Fallback),
			Reason: "is none of FallbackClosed, FallbackOpen, FallbackLocal"}
	case o.Fallback == FallbackLocal && !(o.LocalShare > 0 && o.LocalShare <= 1):
		return &OptionError{Field: "LocalShare", Value: o.LocalShare, Reason: "FallbackLocal needs a share above 0, up to 1"}
	case o.Timeout < time.Millisecond || o.Timeout > time.Minute:
		return &OptionError{Field: "Timeout", Value: o.Timeout, Reason: "is not between 1ms and 1m"}
	case o.Grace < time.Millisecond || o.Grace > 24*time.Hour:
		return &OptionError{Field: "Grace", Value: o.Grace, Reason: "is not between 1ms and 24h"}
	case o.Lookahead < 100*time.Millisecond || o.Lookahead > maxWindow:
		return &OptionError{Field: "Lookahead", Value: o.Lookahead,
			Reason: "is not between 100ms and " + wire.Duration(maxWindow)}
	case !(o.PriorityFloor >= leastPriorityFloor && o.PriorityFloor <= 0.5):
		return &OptionError{Field: "PriorityFloor", Value: o.PriorityFloor, Reason: "is not between 0.01 and 0.5"}
	case !o.Mode.valid():
		return &OptionError{Field: "Mode", Value: int(o.Mode), Reason: "is none of Enforce, Shadow, Off"}
	case o.Advance != 0 && (o.Advance < 5*time.Millisecond || o.Advance > longestAdvance):
		return &OptionError{Field: "Advance", Value: o.Advance, Reason: "is neither 0 nor between 5ms and 1s"}
	case o.SettleWithin < time.Minute || o.SettleWithin > maxWindow:
		return &OptionError{Field: "SettleWithin", Value: o.SettleWithin,
			Reason: "is not between 1m and " + wire.Duration(maxWindow)}
	case o.BreakPeriod < time.Millisecond || o.BreakPeriod > time.Hour:
		return &OptionError{Field: "BreakPeriod", Value: o.BreakPeriod, Reason: "is not between 1ms and 1h"}
	}
	for key, share := range o.Shares {
		if share < 1 || share > maxShare {
			return &OptionError{Field: "Shares", Value: share,
				Reason: fmt.Sprintf("of key %q is not between 1 and %d", key, maxShare)}
		}
	}
	return nil
}

// fairScope returns the name of the fair scope among scopes; empty if there is none.
func (o Options) fairScope(scopes []Scope) (string, error) {
	name := cmp.Or(o.FairScope, defaultFairScope)
	known := slices.ContainsFunc(scopes, func(s Scope) bool { return s.Name == name })
	switch {
	case name == Global:
		return "", nil
	case !known && o.FairScope != "":
		return "", &OptionError{Field: "FairScope", Value: name, Reason: "is no scope of this throttle"}
	case !known:
		return "", nil
	}
	return name, nil
}
