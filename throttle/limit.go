package throttle

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Unlimited as a Limit's Units means that the limit never holds a job back.
// Nothing is counted for it.
const Unlimited int64 = -1

// maxUnits is the largest number of units a limit or a weight may have: the
// largest integer up to which Redis' Lua counts without losing a unit.
const maxUnits = wire.MaxUnits

// The range a Window may have.
const (
	minWindow = time.Millisecond
	maxWindow = wire.MaxWindow
)

// Exact is the finest Precision: every start is kept at its own microsecond.
const Exact = time.Microsecond

// exactUnits is the largest limit that is exact by default: its ledger then
// holds at most this many entries, which Redis keeps in its compact form.
const exactUnits = 100

// defaultSubWindows is the number of sub-windows a larger limit's window is
// divided into by default.
const defaultSubWindows = 100

// maxEntries is how many entries a ledger may need: one for each unit of its limit, or one for each
// sub-window, whichever is fewer. It bounds what one decision reads.
const maxEntries = 1000

// DefaultLease is the Lease of a running limit that names none.
const DefaultLease = 30 * time.Second

// The range a Lease may have.
const (
	minLease = 200 * time.Millisecond
	maxLease = 24 * time.Hour
)

// leaseSubWindows is the number of sub-windows of a lease. A running limit's ledger has at most as
// many entries.
const leaseSubWindows = 1000

// Limit is a number of units per sliding window: in every interval of length
// Window the weights of the jobs started in it sum to at most Units. Or it is a running
// limit: at no instant do the weights of the jobs that run sum to more than Units. Or it is a
// quota: in no period of its Calendar do the weights of the jobs started sum to more than Units. Or it is
// Hours: outside of them no job starts.
//
// The zero Limit is not valid. A Limit is a value, safe to share.
type Limit struct {
	// Units is the most that may start in any window, in the unit that the
	// caller's weights are in. 0 blocks every job; Unlimited (-1) none.
	// At most 2^53, up to which Redis' Lua counts without losing a unit. Hours are Unlimited.
	Units int64
	// Window is the length of the sliding window, in whole microseconds,
	// from 1 ms to 400 days.
	Window time.Duration
	// Precision is the length of the sub-windows that starts are counted in,
	// in whole microseconds, from Exact to Window. A start counts until its
	// whole sub-window has left the window, so the limit errs on the strict
	// side by at most one Precision. Precision is also how late a booked job
	// may start without moving in its ledger.
	// 0 means Exact for up to 100 units, else a hundredth of the window. A limit of more than
	// 1,000 units is counted in 1,000 sub-windows at most.
	Precision time.Duration
	// Running makes it a limit on the units that run at once: from a job's start until
	// Throttle.Done, or until its Lease is over. It has no Window and no Precision.
	Running bool
	// Lease is how long a job counts as running without Throttle.Renew: the places of a process
	// that dies stay occupied for that long, up to a thousandth longer, never shorter. In whole
	// microseconds, from 200 ms to 24 h, and at least twice Options.Lookahead. 0 means
	// DefaultLease.
	Lease time.Duration
	// Calendar makes it a quota: it limits the units that start in each day, week or month of a
	// time zone, and begins anew at the next. It has no Window, no Precision and no Lease. Twice the
	// Units may start within a short time around the end of a period; a second limit with a short
	// Window bounds that.
	Calendar Calendar
	// Hours makes it opening hours: jobs start only in these, and all of them may; the Units are Unlimited,
	// and nothing is counted. A job that starts before the hours end may run on after them. The text has
	// ranges of days and times, closed dates and a time zone, as OpenHours takes it, in the form in which ParseLimit
	// and OpenHours write it, with single spaces.
	Hours string
	// Ramp makes it a quota whose units grow, step by step: in no period do more units start than its step has, and
	// before the first step begins nothing starts. The Calendar is that of the text, and the Units are those of the
	// last step, which hold from then on: a job that weighs more never fits, and a job that weighs more than a step
	// waits for a later step. The text has the form in which ParseLimit and the function Ramp write it, with all steps.
	Ramp string
}

// Per returns the limit of units per window at the default precision.
func Per(units int64, window time.Duration) Limit { return Limit{Units: units, Window: window} }

// PerSecond returns the limit of units per second at the default precision.
func PerSecond(units int64) Limit { return Per(units, time.Second) }

// PerMinute returns the limit of units per minute at the default precision.
func PerMinute(units int64) Limit { return Per(units, time.Minute) }

// PerHour returns the limit of units per hour at the default precision.
func PerHour(units int64) Limit { return Per(units, time.Hour) }

// PerDay returns the limit of units per 24 hours at the default precision.
func PerDay(units int64) Limit { return Per(units, 24*time.Hour) }

// Running returns the limit of units that run at once, with the DefaultLease.
func Running(units int64) Limit { return Limit{Units: units, Running: true} }

// ParseLimit reads one limit from text: units, a slash and the window, then
// optionally an at sign and the precision; or, for a running limit, units, "/running",
// then optionally an at sign and the lease; or, for a quota, units, a slash, day, week or month,
// optionally how many days and hours after its beginning, an at sign and the time zone; or, for hours, "open",
// then what OpenHours takes; or "ramp", then what Ramp takes:
//
//	100/1m    2000/24h    50000/7d@1h    unlimited/1m    3/running    3/running@1m
//	5000/day@Europe/Paris    5000/day+3h@America/Los_Angeles    20000/week+6d@UTC    100000/month+14d@UTC
//	open Mon-Fri 09:00-17:00, Sat 10:00-12:00, except 2026-12-25 @Europe/Paris
//	ramp 50/day x2 max 20000 from 2026-12-01 @UTC    ramp 50 100 200/day every 2d from 2026-12-01 @UTC
//
// Window, precision and lease are written as for time.ParseDuration, or as a number of days of 24 hours: 7d. A
// window of one second, minute, hour or day may be written as its letter: 100/m. The error is a *LimitError.
func ParseLimit(text string) (Limit, error) {
	limit, err := parseLimit(strings.TrimSpace(text))
	if err != nil {
		return Limit{}, &LimitError{Text: text, Reason: err.Error()}
	}
	if err := limit.validate(); err != nil {
		return Limit{}, err
	}
	return limit, nil
}

// ParseLimits reads limits separated by commas, such as "100/1m, 2000/24h". Commas within hours, before their time
// zone, do not separate limits. The error is a *LimitError.
func ParseLimits(text string) ([]Limit, error) {
	var limits []Limit
	hours := ""
	for part := range strings.SplitSeq(text, ",") {
		if part = hours + part; isHoursText(part) && !strings.Contains(part, "@") {
			hours = part + ","
			continue
		}
		hours = ""
		limit, err := ParseLimit(part)
		if err != nil {
			return nil, err
		}
		limits = append(limits, limit)
	}
	if hours != "" {
		_, err := ParseLimit(strings.TrimSuffix(hours, ","))
		return nil, err
	}
	return limits, nil
}

func parseLimit(text string) (Limit, error) {
	if isHoursText(text) {
		of, err := calendar.HoursOf(strings.TrimPrefix(text, openText))
		if err != nil {
			return Limit{}, err
		}
		return hoursOf(of), nil
	}
	if rest, is := cutWord(text, rampText); is {
		of, err := calendar.RampOf(rest)
		if err != nil {
			return Limit{}, err
		}
		return rampOf(of), nil
	}
	units, rest, ok := strings.Cut(text, "/")
	if !ok {
		return Limit{}, fmt.Errorf("want units/window, such as 100/1m")
	}
	window, precision, hasPrecision := strings.Cut(rest, "@")
	var limit Limit
	var err error
	if limit.Units, err = parseUnits(strings.TrimSpace(units)); err != nil {
		return Limit{}, err
	}
	if strings.TrimSpace(window) == runningText {
		limit.Running = true
		if hasPrecision {
			limit.Lease, err = parseLease(strings.TrimSpace(precision))
		}
		return limit, err
	}
	if calendar.IsUnit(strings.TrimSpace(window)) {
		of, err := calendar.Parse(strings.TrimSpace(window) + "@" + strings.TrimSpace(precision))
		if err != nil {
			return Limit{}, err
		}
		limit.Calendar = calendarOf(of)
		return limit, nil
	}
	if limit.Window, err = parseWindow(strings.TrimSpace(window)); err != nil {
		return Limit{}, err
	}
	if hasPrecision {
		if limit.Precision, err = parseDuration(strings.TrimSpace(precision)); err != nil {
			return Limit{}, err
		}
		if limit.Precision == 0 {
			return Limit{}, fmt.Errorf("precision 0s is not between %s and the window", wire.Duration(Exact))
		}
	}
	return limit, nil
}

// runningText stands for a window in the text of a running limit.
const runningText = "running"

func parseLease(text string) (time.Duration, error) {
	lease, err := parseDuration(text)
	if err == nil && lease == 0 {
		err = fmt.Errorf("lease 0s is not between %s and %s", minLease, wire.Duration(maxLease))
	}
	return lease, err
}

// parseWindow reads a duration, or the letter of a unit alone, which means one: 10/s is 10/1s.
func parseWindow(text string) (time.Duration, error) {
	switch text {
	case "s", "m", "h", "d":
		text = "1" + text
	}
	return parseDuration(text)
}

func parseUnits(text string) (int64, error) {
	if text == "unlimited" {
		return Unlimited, nil
	}
	units, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("units %q are not an integer of 0 or more", text)
	}
	return int64(units), nil
}

// parseDuration is time.ParseDuration, but also reads a number of days, such as 7d. A day has 24 hours.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a number of days", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration, such as 30s, 1m or 24h", text)
	}
	return d, nil
}

// String prints the limit in the form that ParseLimit reads.
func (l Limit) String() string {
	if l.isHours() {
		return openText + " " + l.Hours
	}
	if l.isRamp() {
		return rampText + " " + l.Ramp
	}
	text := "unlimited"
	if l.Units != Unlimited {
		text = strconv.FormatInt(l.Units, 10)
	}
	text += "/" + l.Label()
	if detail := cmp.Or(l.Precision, l.Lease); detail != 0 {
		text += "@" + wire.Duration(detail)
	}
	return text
}

// Label returns what stands after the slash in the limit's text, without the precision or the lease:
// 1m, 24h, running, day@UTC; of hours it is open, and of a ramp the label of the quota that it is. No two
// limits of a scope have the same label.
func (l Limit) Label() string {
	if l.isHours() {
		return openText
	}
	if l.isQuota() {
		return l.Calendar.String()
	}
	if l.Running {
		return runningText
	}
	return wire.Duration(l.Window)
}

// isQuota reports whether it limits what starts in a period of a calendar.
func (l Limit) isQuota() bool { return l.Calendar != Calendar{} }

// Length returns about how long a start counts: the Window, without a Margin, or the Lease in force. For a quota it is
// about the length of a period: 1, 7 or 31 times 24 hours. For hours, which count nothing, it is a week.
func (l Limit) Length() time.Duration {
	if l.isQuota() || l.isHours() {
		return time.Duration(l.span(0).Length) * time.Microsecond
	}
	if l.Running {
		return l.lease()
	}
	return l.Window
}

// WithDefaults returns the limit with the Precision or the Lease in force.
func (l Limit) WithDefaults() Limit {
	switch {
	case l.isQuota() || l.isHours():
	case l.Running:
		l.Lease = l.lease()
	default:
		l.Precision = l.precision()
	}
	return l
}

// MarshalText prints the limit in the form that ParseLimit reads.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what ParseLimit reads. The error is a *LimitError.
func (l *Limit) UnmarshalText(text []byte) error {
	limit, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = limit
	return nil
}

func (l Limit) validate() error {
	bad := func(format string, args ...any) error {
		return &LimitError{Text: l.String(), Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case l.Units < Unlimited || l.Units > maxUnits:
		return bad("%d units are not between 0 and %d, nor Unlimited", l.Units, maxUnits)
	case l.isHours():
		return l.validateHours()
	case l.isRamp():
		return l.validateRamp()
	case l.isQuota():
		return l.validateQuota()
	case l.Running && (l.Window != 0 || l.Precision != 0):
		return bad("a running limit has no window and no precision")
	case l.Running && (l.lease() < minLease || l.lease() > maxLease):
		return bad("lease %s is not between %s and %s", l.Lease, minLease, wire.Duration(maxLease))
	case l.Running && l.Lease%time.Microsecond != 0:
		return bad("lease %s is not in whole microseconds", l.Lease)
	case l.Running:
		return nil
	case l.Lease != 0:
		return bad("only a running limit has a lease")
	case l.Window < minWindow || l.Window > maxWindow:
		return bad("window %s is not between %s and %s", l.Window, minWindow, wire.Duration(maxWindow))
	case l.Window%time.Microsecond != 0:
		return bad("window %s is not in whole microseconds", l.Window)
	case l.Precision < 0 || l.Precision > l.Window:
		return bad("precision %s is not between %s and the window", l.Precision, Exact)
	case l.Precision%time.Microsecond != 0:
		return bad("precision %s is not in whole microseconds", l.Precision)
	case l.Units > maxEntries && l.precision() < l.coarseEnough():
		return bad(
			"precision %s divides the window into more than %d sub-windows, and there are more units than that: want %s or more",
			wire.Duration(l.precision()), maxEntries, wire.Duration(l.coarseEnough()))
	}
	return nil
}

func (l Limit) validateQuota() error {
	if l.Window != 0 || l.Precision != 0 || l.Running || l.Lease != 0 {
		return &LimitError{Text: l.String(), Reason: "a limit with a Calendar has no window, precision or lease, " +
			"and does not count what runs"}
	}
	if err := l.Calendar.validate(); err != nil {
		return &LimitError{Text: l.String(), Reason: err.Error()}
	}
	return nil
}

// precision is the Precision in force: the default filled in. It means nothing for a quota, which has a sub-window for
// each period, and for hours, which count nothing.
func (l Limit) precision() time.Duration {
	if l.isQuota() || l.isHours() {
		return Exact
	}
	if l.Running {
		return (l.lease() / leaseSubWindows).Truncate(time.Microsecond)
	}
	if l.Precision != 0 {
		return l.Precision
	}
	if l.Units <= exactUnits {
		return Exact
	}
	return (l.Window / defaultSubWindows).Truncate(time.Microsecond)
}

// coarseEnough is the finest precision that a limit of many units may have.
func (l Limit) coarseEnough() time.Duration {
	us := (l.Window.Microseconds() + maxEntries - 1) / maxEntries
	return time.Duration(us) * time.Microsecond
}

// lease is the Lease in force.
func (l Limit) lease() time.Duration {
	if l.Lease != 0 {
		return l.Lease
	}
	return DefaultLease
}

// span identifies the limit among those of a scope key. A window is longer by the margin.
func (l Limit) span(margin time.Duration) line.Span {
	if l.isHours() {
		if of, err := calendar.HoursOf(l.Hours); err == nil {
			return line.Open(of)
		}
		return line.Span{Kind: line.Hours}
	}
	if l.isQuota() {
		if of := l.Calendar.known(); of != nil {
			return line.Periods(of)
		}
		return line.Span{Kind: line.Quota}
	}
	if l.Running {
		return line.Lease(l.lease().Microseconds())
	}
	return line.Window((l.Window + margin).Microseconds())
}

// limitOf is the inverse of Scope.counted: it returns the limit that is counted in this way under a margin.
func limitOf(counted line.Limit, margin time.Duration) Limit {
	length := time.Duration(counted.Length) * time.Microsecond
	if counted.Kind == line.Running {
		return Limit{Units: counted.Units, Running: true, Lease: length}
	}
	if counted.Kind == line.Hours {
		return Limit{Units: Unlimited, Hours: counted.Calendar}
	}
	if counted.Kind == line.Quota {
		of, err := calendar.Of(counted.Calendar)
		if err != nil {
			return Limit{} // never: the reader of an answer refuses an unknown calendar
		}
		if steps, err := line.StepsOf(counted.Ramp); err == nil {
			return rampOf(&calendar.Ramp{Calendar: of, Steps: *steps})
		}
		return Limit{Units: counted.Units, Calendar: calendarOf(of)}
	}
	if length > margin { // else the window was set under another margin
		length -= margin
	}
	return Limit{Units: counted.Units, Window: length, Precision: time.Duration(counted.Precision) * time.Microsecond}
}

// entered returns the limit as a person enters it: without a precision or a lease that is the default, or that
// like would take from own, a limit with the same label.
func (l Limit) entered(own Limit) Limit {
	short := l
	short.Precision, short.Lease = 0, 0
	if short.like(own).WithDefaults() == l.WithDefaults() {
		return short
	}
	return l.plain()
}

// plain returns the limit without a precision or a lease that is the default.
func (l Limit) plain() Limit {
	short := l
	short.Precision, short.Lease = 0, 0
	if short.WithDefaults() == l.WithDefaults() {
		return short
	}
	return l
}

// like returns the limit with the precision or the lease of own, a limit with the same label, if it has none of
// its own: with another value, the limit would begin to count anew.
func (l Limit) like(own Limit) Limit {
	switch was, is := own.precision(), l.precision(); {
	case l.isQuota() || l.isHours():
	case l.Running && l.Lease == 0:
		l.Lease = own.Lease
	case l.Running || l.Precision != 0 || l.Units == Unlimited || own.Units == Unlimited:
	case was > is || was < is && l.Units <= maxEntries:
		l.Precision = was
	}
	return l
}
