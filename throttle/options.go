package throttle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Fallback is what happens to a decision while Redis cannot answer: it refuses
// connections, does not answer in time, is a read-only replica, is out of
// memory, or moves the throttle's slot.
type Fallback int

const (
	// FallbackClosed answers with an *UnavailableError: nothing starts. It is
	// the default, since a limit is then never exceeded.
	FallbackClosed Fallback = iota
	// FallbackOpen grants every job at once, unchecked and uncharged.
	FallbackOpen
	// FallbackLocal grants what fits into this process' own share of the
	// limits, Options.LocalShare; the rest gets an *UnavailableError.
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
	defaultTimeout      = 250 * time.Millisecond
	defaultGrace        = 5 * time.Second
	defaultLookahead    = time.Second
	defaultFairScope    = "tenant"
	defaultSettleWithin = time.Hour
	defaultBreakAfter   = 5
	defaultBreakPeriod  = 500 * time.Millisecond
)

// Options are the settings of a Throttle that have a default. The zero value
// and nil both have all of them.
type Options struct {
	// Fallback is what to do while Redis cannot answer. Default FallbackClosed.
	Fallback Fallback
	// LocalShare is the part of each limit that this process may use by itself
	// under FallbackLocal, in 0..1: 1 divided by the number of processes that
	// share the throttle. There it must be set; otherwise it is not read.
	LocalShare float64
	// Timeout bounds each call to Redis, whatever the client's own timeouts
	// are, and how long Reserve waits for its answer. 0 means 250 ms; 1 ms to a minute.
	Timeout time.Duration
	// Grace is how long after its slot a booking still counts when its job has
	// not come: long enough for a queue's lateness, short enough not to keep
	// capacity from others for jobs that were deleted. 0 means 5 s; 1 ms to a day.
	// All processes of one throttle must use the same.
	Grace time.Duration
	// Lookahead is how far ahead jobs are booked; behind it they wait in line. It
	// has to be long enough for a booked job to be brought in time, by another
	// process if its own has died. Longer makes newcomers wait for more that is
	// promised already, and every decision read more of it; the shares are the
	// same. 0 means 1 s; 100 ms to 400 days.
	Lookahead time.Duration
	// FairScope is the keyed scope whose keys have a share each of every limit under
	// which several of them wait. Empty means "tenant" if there is such a scope.
	// Global, or no such scope, is one line for all: first come, first served.
	FairScope string
	// Shares are the parts that keys of the fair scope have in that division: a
	// key with 3 starts three units where one with 1 starts one. 1 to 1,000,000;
	// a key that is not there has 1, or what Share says.
	Shares map[string]int
	// Share says the share of a key that Shares does not have. It is called often
	// and by several goroutines; less than 1 is taken as 1, more than 1,000,000 as
	// 1,000,000. A panic is logged, and the share is 1. It is not asked for keys of more
	// than about 128 bytes, of which Redis has only the hash.
	Share func(key string) int
	// FairByTime divides the places of running limits by units times the seconds that they
	// are held, so that a key with long jobs does not have more of them than one with short
	// jobs. Else units are counted at their start, as under windows. A job is charged for a
	// second at its start, and for what it took when it is renewed and when it has ended.
	FairByTime bool
	// PriorityFloor is the part of what a key of the fair scope starts that jobs of a lower
	// Priority have while those of the next higher one wait too, counted in units: 0.01 to
	// 0.5, rounded so that a whole number of units of the higher one comes for each. 0 means
	// 0.1, nine units for one. All processes of one throttle should use the same.
	PriorityFloor float64
	// Mode is that of all scopes: Enforce unless it is said otherwise here, by
	// Scope.Mode, the weaker of the two, or at run time by SetMode. Also when it is
	// Off every decision asks Redis, since that may change.
	Mode Mode
	// SettleWithin is how long after its start a granted job may be settled; what is
	// settled is remembered as long. 0 means an hour; a minute to 400 days.
	SettleWithin time.Duration
	// BreakAfter is how many calls must fail in a row until Redis is left alone
	// for BreakPeriod. 0 means 5; negative never breaks.
	BreakAfter int
	// BreakPeriod is how long Redis is left alone before one call tries again.
	// 0 means 500 ms; 1 ms to an hour.
	BreakPeriod time.Duration
	// Observer hears of decisions, calls to Redis and what else an Observer is
	// for. nil is none, and costs nothing.
	Observer Observer
	// Logger takes what an operator should know: fallbacks, at most one a
	// second of each kind, at warn. nil writes what is at warn or above to standard
	// error, as asynq and go-redis do; zap.NewNop() is silent.
	Logger *zap.Logger
}

// withDefaults returns a checked copy with every default filled in.
func (o *Options) withDefaults() (Options, error) {
	var options Options
	if o != nil {
		options = *o
		options.Shares = maps.Clone(o.Shares) // the process is published now and then
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
			Reason: "is not between 100ms and " + formatDuration(maxWindow)}
	case !(o.PriorityFloor >= leastPriorityFloor && o.PriorityFloor <= 0.5):
		return &OptionError{Field: "PriorityFloor", Value: o.PriorityFloor, Reason: "is not between 0.01 and 0.5"}
	case !o.Mode.valid():
		return &OptionError{Field: "Mode", Value: int(o.Mode), Reason: "is none of Enforce, Shadow, Off"}
	case o.SettleWithin < time.Minute || o.SettleWithin > maxWindow:
		return &OptionError{Field: "SettleWithin", Value: o.SettleWithin,
			Reason: "is not between 1m and " + formatDuration(maxWindow)}
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

// fairScope is the name of the fair scope among scopes, empty if there is none.
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
