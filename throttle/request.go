package throttle

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// This file has what the scripts are asked; answer.go has what they say.

// order is a job as the scripts are asked about it.
type order struct {
	job     Job
	flow    string   // the encoded key of the fair scope, empty for none
	charges []charge // by the names of the scope keys
	lane    string
}

// laneOf names a lane: its flow, with # and the priority if that is not 0, a bar and the
// names of its scope keys.
func laneOf(flow string, priority int, charges []charge) string {
	var b strings.Builder
	b.WriteString(flow)
	if priority > 0 {
		b.WriteByte('#')
		b.WriteString(strconv.Itoa(priority))
	}
	b.WriteByte('|')
	for i := range charges {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(charges[i].name)
	}
	return b.String()
}

// laneParts are what laneOf has put together. It returns false for what is no lane.
func laneParts(lane string) (flow string, priority int, names string, is bool) {
	flow, names, is = strings.Cut(lane, "|")
	flow, lower, hasPriority := strings.Cut(flow, "#")
	if hasPriority {
		n, err := strconv.Atoi(lower)
		priority, is = n, is && err == nil
	}
	return flow, priority, names, is
}

// costs are what the job takes of its scope keys, in the order of the lane.
func (o *order) costs() string {
	if len(o.charges) == 0 {
		return strconv.FormatInt(o.job.Weight, 10)
	}
	return o.costsBy(func(c *charge) int64 { return c.units })
}

// costsBy are costs of which by says what each scope key's is.
func (o *order) costsBy(by func(c *charge) int64) string {
	units := make([]int64, len(o.charges))
	for i := range o.charges {
		units[i] = by(&o.charges[i])
	}
	return costsText(units)
}

// costsText has one number for several that are the same.
func costsText(units []int64) string {
	if same := slices.Compact(slices.Clone(units)); len(same) == 1 {
		return integers(',', same...)
	}
	return integers(',', units...)
}

// charged finds a scope key of the job by its name.
func (o *order) charged(name string) *charge {
	for i := range o.charges {
		if o.charges[i].name == name {
			return &o.charges[i]
		}
	}
	return nil
}

// units is what the job takes of a scope.
func (o *order) units(scope string) int64 {
	for i := range o.charges {
		if o.charges[i].scope.Name == scope {
			return o.charges[i].units
		}
	}
	return 0
}

// mostSteps bounds the work of one call of a script: a step takes half a microsecond of
// Redis, so that a call ends after some 4 ms. What it has left undone the next one does.
const mostSteps = 8_000

// newHeader are the arguments that never change: how far ahead jobs are booked, how
// long bookings count and the line's keys live, what priorities are worth, how many steps one
// call takes, and the scopes.
func newHeader(scopes []Scope, options Options) [2]string {
	times := integers(' ', options.Lookahead.Microseconds(), options.Grace.Microseconds(),
		lineKept(scopes, options.Lookahead).Milliseconds(),
		options.unitsForOneLower(), mostSteps)
	var b strings.Builder
	for _, scope := range scopes {
		b.WriteString(scope.Name + "=" + max(scope.Mode, options.Mode).letter() + ":" + scope.limitsText(scope.Limits) + ";")
	}
	return [2]string{times, b.String()}
}

// limitsText lists limits of the scope as the scripts count them, in the order of their spans.
func (s Scope) limitsText(limits []Limit) string {
	counted := make([]line.Limit, len(limits))
	for i, l := range limits {
		counted[i] = s.counted(l)
	}
	slices.SortFunc(counted, func(a, b line.Limit) int { return a.Compare(b.Span) })
	return line.LimitsText(counted)
}

// lineKept is how long the line's keys live after the last write: longer than any
// window that a job may have to wait for, than any slot is ahead, and than a lane
// is likely to wait for its turn.
func lineKept(scopes []Scope, lookahead time.Duration) time.Duration {
	longest := time.Duration(0)
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			longest = max(longest, time.Duration(scope.counted(limit).Length)*time.Microsecond)
		}
	}
	return lookahead + 2*longest + 30*24*time.Hour
}

// arguments puts a script's own arguments after those that all scripts begin with.
func (t *setup) arguments(own ...string) []any {
	args := make([]any, 0, 3+len(own))
	args = append(args, t.nowArgument(), t.header[0], t.header[1])
	for _, text := range own {
		args = append(args, text)
	}
	return args
}

// nowArgument is empty in production: the script then reads Redis' clock.
func (t *setup) nowArgument() string {
	if t.now == nil {
		return ""
	}
	return strconv.FormatInt(t.now().UnixMicro(), 10)
}

// peeking is the asking of a call that decides nothing.
const peeking = 0

// reserveArguments ask for decisions. asking is a number that rises with each call of
// the same asker.
func (t *setup) reserveArguments(asking int64, orders ...*order) []any {
	own := make([]string, 0, 2+3*len(orders))
	own = append(own, t.asker, strconv.FormatInt(asking, 10))
	for _, o := range orders {
		own = append(own, o.job.ID, o.lane,
			o.costs()+" "+integers(' ', flag(o.job.Plan), o.job.MaxWait.Microseconds(), t.latest(o.job), t.shares.of(o.flow)))
	}
	return t.arguments(own...)
}

// latest is how far off a job's deadline is, in microseconds: farther than any start if it has
// none, -1 if it has passed.
func (t *setup) latest(job Job) int64 {
	if job.Deadline.IsZero() {
		return maxUnits
	}
	if left := t.until(job.Deadline); left >= 0 {
		return left.Microseconds()
	}
	return -1
}

// until is how far off an instant is by the local clock, the only one that the
// caller can have meant it by.
func (t *setup) until(instant time.Time) time.Duration {
	if t.now == nil {
		return time.Until(instant)
	}
	return instant.Sub(t.now())
}

// pullArguments ask for a pull, before which what jobs hold that have ended is given back.
// Who does not bring jobs that did not come leaves them to others.
func (t *setup) pullArguments(bookings, looks int64, brings bool, ended []Reservation) []any {
	own := []string{integers(' ', bookings, looks, flag(brings), flag(t.options.FairByTime))}
	return t.arguments(append(own, t.grantArguments(ended)...)...)
}

// leaver is a job that will not come. Its lane and costs are empty if not known.
type leaver struct{ id, lane, costs string }

func (t *setup) leaveArguments(leavers ...leaver) []any {
	own := make([]string, 0, 3*len(leavers))
	for _, l := range leavers {
		own = append(own, l.id, l.lane, l.costs)
	}
	return t.arguments(own...)
}

// settleArguments correct what a job was charged at its start. With rebook, what is
// given back is booked again for the same start.
func (t *setup) settleArguments(o *order, granted *Reservation, actual string, rebook bool) []any {
	return t.arguments(o.job.ID, o.lane, o.costs(), actual,
		integers(' ', granted.Start.UnixMicro(), granted.decided(), t.options.SettleWithin.Microseconds(),
			t.shares.of(o.flow), flag(rebook)))
}

// The verbs of running.
const (
	runningDone  = "done"
	runningRenew = "renew"
)

// runningArguments end what grants hold, or renew it.
func (t *setup) runningArguments(verb string, grants []Reservation) []any {
	own := []string{verb + " " + strconv.FormatInt(flag(t.options.FairByTime), 10)}
	return t.arguments(append(own, t.grantArguments(grants)...)...)
}

// grantArguments are grants with their cool-downs.
func (t *setup) grantArguments(grants []Reservation) []string {
	own := make([]string, 0, 3*len(grants))
	for i := range grants {
		g := &grants[i]
		own = append(own, g.Job.ID, strconv.FormatInt(g.Start.UnixMicro(), 10), t.cooldowns(g))
	}
	return own
}

// cooldowns are how long what a job held counts on, by its scopes.
func (t *setup) cooldowns(granted *Reservation) string {
	text := ""
	for i := range t.scopes {
		cooldown := t.scopes[i].Cooldown
		if own, has := granted.Cooldowns[t.scopes[i].Name]; has {
			cooldown = own
		}
		if cooldown > 0 {
			text += t.scopes[i].Name + "=" + strconv.FormatInt(cooldown.Microseconds(), 10) + ","
		}
	}
	return text
}

// setArguments change what is set, for a time, or for 0 until it is taken back.
func (t *setup) setArguments(what, name, value string, left time.Duration, of terms) []any {
	return t.arguments(what, name, value, integers(' ', left.Microseconds()), of.note())
}

// reportArguments tell what an upstream said.
func (t *setup) reportArguments(name string, of Scope, r Report) []any {
	started := int64(0)
	if !r.Started.IsZero() {
		started = max(0, r.Started.UnixMicro())
	}
	limits := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		units := min(l.Units, maxUnits)
		if units < 0 { // it does not say: as many as may be
			units = maxUnits
		}
		window := l.Window
		if window != 0 {
			window += of.Margin
		}
		limits[i] = integers('/', window.Microseconds(), units, min(l.Remaining, maxUnits))
	}
	wait := (min(r.RetryAfter, maxLease) + time.Microsecond - 1).Microseconds()
	return t.arguments(name, integers(' ', flag(r.Refused), started, wait, inThousandths(of.Floor)),
		strings.Join(limits, ","))
}

// The flags of usage.
const (
	usageTotals  = ""
	usageEntries = "e"
)

// usageCount asks for the units between two instants in the past, the first of which is
// not later than from.
func usageCount(from, to time.Duration) string {
	return "c " + integers(' ', (from+time.Microsecond-1).Microseconds(), to.Microseconds())
}

func (t *setup) usageArguments(flags string, names ...string) []any {
	return t.arguments(append([]string{flags}, names...)...)
}

// linesArguments ask for a page of what waits.
func (t *setup) linesArguments(kind string, own ...string) []any {
	return t.arguments(append([]string{kind}, own...)...)
}

// integers writes numbers as the scripts read them.
func integers(between byte, numbers ...int64) string {
	text := make([]byte, 0, 48)
	for i, n := range numbers {
		if i > 0 {
			text = append(text, between)
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text)
}

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
