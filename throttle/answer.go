package throttle

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// This file has what the scripts say; request.go has what they are asked.

// values are what a script said, read one after the other. A value that is not as it
// is to be is read as zero, and end says that it was.
type values struct {
	script string
	rest   []string
	wrong  bool
}

// arrayOf is the answer of a script that says an array of texts and integers.
func arrayOf(script string, reply any) *values {
	v := &values{script: script}
	list, isArray := reply.([]any)
	v.wrong = !isArray
	v.rest = make([]string, len(list))
	for i, element := range list {
		switch x := element.(type) {
		case string:
			v.rest[i] = x
		case int64:
			v.rest[i] = strconv.FormatInt(x, 10)
		default:
			v.wrong = true
		}
	}
	return v
}

// lineOf are the values of a line of text, separated by blanks.
func lineOf(script, line string) *values {
	return &values{script: script, rest: strings.Split(line, " ")}
}

func (v *values) more() bool { return len(v.rest) > 0 && !v.wrong }

func (v *values) text() string {
	if len(v.rest) == 0 {
		v.wrong = true
		return ""
	}
	text := v.rest[0]
	v.rest = v.rest[1:]
	return text
}

func (v *values) integer() int64 {
	n, err := strconv.ParseInt(v.text(), 10, 64)
	if err != nil {
		v.wrong = true
		return 0
	}
	return n
}

// natural is an integer of 0 or more.
func (v *values) natural() int64 {
	n := v.integer()
	if n < 0 {
		v.wrong = true
		return 0
	}
	return n
}

// instant is zero for 0, and for what never comes.
func (v *values) instant() time.Time { return instant(v.natural()) }

func (v *values) duration() time.Duration {
	n := v.natural()
	if n > maxUnits {
		v.wrong = true
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

func (v *values) float() float64 {
	x, err := strconv.ParseFloat(v.text(), 64)
	v.wrong = v.wrong || err != nil
	return x
}

// costs reads what costsText wrote.
func (v *values) costs() []int64 {
	list := &values{rest: strings.Split(v.text(), ",")}
	var costs []int64
	for list.more() {
		costs = append(costs, list.natural())
	}
	v.wrong = v.wrong || list.wrong
	return costs
}

// yes is 1 for yes and 0 for no.
func (v *values) yes() bool {
	n := v.integer()
	v.wrong = v.wrong || n != 0 && n != 1
	return n == 1
}

// limit is units/window/precision.
func (v *values) limit(t *Throttle, scope string) Limit {
	parts := &values{rest: strings.Split(v.text(), "/")}
	units := parts.integer()
	window, precision := parts.duration(), parts.duration()
	if parts.end() != nil || units < Unlimited || window == 0 || precision == 0 {
		v.wrong = true
		return Limit{}
	}
	return t.limitAs(scope, Limit{Units: units, Window: window, Precision: precision})
}

// end is the error of an answer in which anything is wrong, missing or left over.
func (v *values) end() error {
	if v.wrong || len(v.rest) > 0 {
		return badReply(v.script)
	}
	return nil
}

func badReply(script string) error {
	return fmt.Errorf("throttle: script %s gave an answer that is none of its own: %w", script, ErrState)
}

// never is from what instant on nothing comes, in microseconds: the scripts have 2^53 for
// never, less the time that a look comes before it.
const never = maxUnits - 2*int64(maxWindow/time.Microsecond)

// instant is a time in microseconds; zero for 0, and for what never comes.
func instant(micros int64) time.Time {
	if micros == 0 || micros >= never {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// limitAs is a limit as the configuration has it: with a Precision of 0 where that
// means the same.
func (t *Throttle) limitAs(scope string, limit Limit) Limit {
	for i := range t.scopes {
		for _, own := range t.scopes[i].Limits {
			if t.scopes[i].Name == scope && own.Units == limit.Units && own.Window == limit.Window && own.precision() == limit.Precision {
				return own
			}
		}
	}
	if plain := Per(limit.Units, limit.Window); plain.precision() == limit.Precision {
		return plain
	}
	return limit
}

// stamp is what every answer begins with.
type stamp struct {
	now  time.Time
	next time.Time // when the line is to be pulled; zero: nothing waits
}

func (v *values) stamp() stamp { return stamp{now: v.instant(), next: v.instant()} }

// endAt is end; of a good answer the line's timer hears.
func (t *Throttle) endAt(at stamp, v *values) error {
	err := v.end()
	if err == nil {
		t.line.heard(at)
	}
	return err
}

// decisions reads the answer of reserve: an Answer for each order.
func (t *Throttle) decisions(reply any, orders []*order) ([]Answer, error) {
	text, isText := reply.(string)
	lines := strings.Split(text, "\n")
	head := lineOf("reserve", lines[0])
	at := head.stamp()
	if err := head.end(); err != nil || !isText || len(lines) != 1+len(orders) {
		return nil, badReply("reserve")
	}
	t.line.heard(at)
	answers := make([]Answer, len(orders))
	for i, o := range orders {
		answers[i].Reservation, answers[i].Err = t.decision(o, at, lineOf("reserve", lines[1+i]))
	}
	return answers, nil
}

// What reserve says of a job, beside the outcomes.
const (
	undecided = 0 // for the error that follows
	tooLate   = 4
	tooHeavy  = 5
)

// decision reads one line of the answer of reserve.
func (t *Throttle) decision(o *order, at stamp, v *values) (Reservation, error) {
	outcome := v.natural()
	if v.wrong {
		return Reservation{}, badReply("reserve")
	}
	switch outcome {
	case int64(Granted), int64(Booked), int64(Waiting):
		return t.reservation(Outcome(outcome), o, at, v)
	case tooLate:
		start := v.instant()
		hold := t.holdIf(o, v)
		if err := v.end(); err != nil {
			return Reservation{}, err
		}
		return Reservation{}, &DeadlineError{Job: o.job.ID, Deadline: o.job.Deadline, Start: start, Hold: hold.until(start)}
	case tooHeavy:
		return Reservation{}, t.heavy(o, v)
	case undecided:
		return Reservation{}, t.redis.classify(context.Background(), time.Now(), errors.New(strings.Join(v.rest, " ")))
	}
	return Reservation{}, badReply("reserve")
}

// reservation reads what was decided.
func (t *Throttle) reservation(outcome Outcome, o *order, at stamp, v *values) (Reservation, error) {
	r := Reservation{Job: o.job, Outcome: outcome, Now: at.now, Next: at.next, lane: o.lane, Start: v.instant()}
	switch outcome {
	case Granted:
		if v.more() {
			r.Shadow = t.hold(o, v)
			r.Shadow = r.Shadow.until(v.instant())
		}
	case Booked:
		r.Hold = t.holdIf(o, v).until(r.Start)
	case Waiting:
		r.Hold = t.holdIf(o, v)
		r.Ahead = v.natural()
		t.estimate(&r, o, v.natural())
	}
	if err := v.end(); err != nil {
		return Reservation{}, err
	}
	if r.Shadow != nil {
		t.logged.shadow(t.name, r)
	}
	return r, nil
}

// noHolder stands for what waits for nothing but its turn.
const noHolder = "-"

// holdIf reads what holds a job back and how much of it is used and booked, if it
// says so.
func (t *Throttle) holdIf(o *order, v *values) *Hold {
	if !v.more() {
		return nil
	}
	hold := t.hold(o, v)
	used, booked := v.natural(), v.natural()
	if hold != nil {
		hold.Used, hold.Booked = used, booked
	}
	return hold
}

// hold reads a limit, name/units/window/precision, or a pause, name/p.
func (t *Throttle) hold(o *order, v *values) *Hold {
	text := v.text()
	if text == noHolder {
		return nil
	}
	name, rest, _ := strings.Cut(text, "/")
	c := o.charged(name)
	if c == nil {
		v.wrong = true
		return nil
	}
	hold := &Hold{Scope: c.scope.Name, Key: c.key}
	if rest == "p" {
		hold.Paused = true
		return hold
	}
	limit := &values{rest: []string{rest}}
	hold.Limit = limit.limit(t, hold.Scope)
	v.wrong = v.wrong || limit.wrong
	return hold
}

// until is the hold with its end.
func (h *Hold) until(end time.Time) *Hold {
	if h != nil {
		h.Until = end
	}
	return h
}

// The places where limits come from.
const (
	configured = "c"
	setAll     = "s" // at run time, for the scope
	setKey     = "k" // at run time, for the key
)

// heavy reads which limit can never hold the job.
func (t *Throttle) heavy(o *order, v *values) error {
	hold, origin := t.hold(o, v), v.text()
	if err := v.end(); err != nil || hold == nil || hold.Paused {
		return badReply("reserve")
	}
	units := o.units(hold.Scope)
	switch origin {
	case configured:
		return &NeverFitsError{Job: o.job.ID, Weight: units, Scope: hold.Scope, Key: hold.Key, Limit: hold.Limit}
	case setAll, setKey:
		return &BlockedError{Job: o.job.ID, Weight: units, Scope: hold.Scope, Key: hold.Key, Limit: hold.Limit}
	}
	return badReply("reserve")
}

// pulled reads the answer of pull.
func (t *Throttle) pulled(reply any) (Pulled, error) {
	v := arrayOf("pull", reply)
	at := v.stamp()
	p := Pulled{Now: at.now, Next: at.next}
	booked, trouble := v.natural(), v.text()
	for n := int64(0); n < booked && v.more(); n++ {
		p.Booked = append(p.Booked, t.booking(at.now, v))
	}
	v.wrong = v.wrong || int64(len(p.Booked)) < booked
	for v.more() {
		p.Overdue = append(p.Overdue, t.booking(at.now, v))
	}
	if err := t.endAt(at, v); err != nil {
		return Pulled{}, err
	}
	if trouble != "" {
		t.logged.trouble(t.name, trouble)
	}
	return p, nil
}

// booking reads the id, the slot and the lane of a job.
func (t *Throttle) booking(now time.Time, v *values) Reservation {
	r := Reservation{Outcome: Booked, Now: now}
	r.Job.ID = v.text()
	r.Start = v.instant()
	r.lane = v.text()
	r.Job.Keys = t.keysOf(r.lane, v)
	return r
}

// keysOf are the keys of the jobs in a lane. A key that only its hash is left of stays
// encoded.
func (t *Throttle) keysOf(lane string, v *values) map[string]string {
	flow, names, is := strings.Cut(lane, "|")
	v.wrong = v.wrong || !is
	keys := make(map[string]string)
	if flow != "" && t.fair != "" {
		keys[t.fair] = decoded(flow)
	}
	for name := range strings.SplitSeq(names, ",") {
		scope, key, is := splitName(name)
		v.wrong = v.wrong || !is && names != ""
		if is && scope != Global {
			keys[scope] = key
		}
	}
	return keys
}

// done reads the answer of a script that says for each thing whether it was done.
func (t *Throttle) done(script string, reply any, want int) ([]bool, error) {
	v := arrayOf(script, reply)
	at := v.stamp()
	done := make([]bool, want)
	for i := range done {
		done[i] = v.yes()
	}
	return done, t.endAt(at, v)
}

// setting is the answer of set.
type setting struct {
	now             time.Time
	before, inForce string
}

func (t *Throttle) setting(reply any) (setting, error) {
	v := arrayOf("set", reply)
	at := v.stamp()
	s := setting{now: at.now, before: v.text(), inForce: v.text()}
	return s, t.endAt(at, v)
}

// pauseEnd reads the value of a pause; 0 is none.
func pauseEnd(text string) (time.Time, error) {
	v := lineOf("set", text)
	end := v.instant()
	return end, v.end()
}

// account is what usage says of one scope key.
type account struct {
	Usage
	counts  []int64       // units in an interval, if it was asked for; -1: no window goes back so far
	windows []line.Window // what is in Redis, if it was asked for
}

// accounts reads the answer of usage.
func (t *Throttle) accounts(reply any, names []string) ([]account, error) {
	v := arrayOf("usage", reply)
	now := v.instant()
	accounts := make([]account, len(names))
	for i, name := range names {
		accounts[i] = t.account(now, name, v)
	}
	return accounts, v.end()
}

func (t *Throttle) account(now time.Time, name string, v *values) account {
	lines := strings.Split(v.text(), "\n")
	var a account
	a.Now = now
	a.Scope, a.Key, _ = splitName(name)
	a.summary(v, lines[0])
	for _, text := range lines[1:] {
		l := lineOf(v.script, text)
		switch kind, _, _ := strings.Cut(text, " "); {
		case kind == "=":
			l.text()
			a.windows = append(a.windows, line.Window{Window: l.natural(), Precision: l.natural(), N: l.natural(), Shift: l.integer()})
		case kind == "#":
			l.text()
			a.counts = append(a.counts, l.integer())
		case strings.Contains(kind, "/"):
			a.Limits = append(a.Limits, t.limitUsage(a.Scope, now, l))
		case len(a.windows) > 0:
			l.entry(&a.windows[len(a.windows)-1])
		default:
			v.wrong = true
		}
		v.wrong = v.wrong || l.end() != nil
	}
	return a
}

// entry reads a sub-window with what is spent and what is booked in it.
func (v *values) entry(of *line.Window) {
	at, spent, booked := v.natural(), v.natural(), v.natural()
	if spent > 0 {
		of.Spent = append(of.Spent, line.Entry{At: at, Units: spent})
	}
	if booked > 0 {
		of.Booked = append(of.Booked, line.Entry{At: at, Units: booked})
	}
}

// summary reads the line that tells of no limit.
func (a *account) summary(v *values, line string) {
	l := lineOf(v.script, line)
	a.Paused = l.instant()
	letter, origin := l.text(), l.text()
	mode := strings.Index(modeLetters, letter)
	switch origin {
	case setAll:
		a.SetFor = "scope"
	case setKey:
		a.SetFor = "key"
	case configured:
	default:
		v.wrong = true
	}
	a.Waiting, a.Next = l.natural(), l.instant()
	a.Mode = Mode(max(mode, 0))
	v.wrong = v.wrong || mode < 0 || len(letter) != 1 || l.end() != nil
}

func (t *Throttle) limitUsage(scope string, now time.Time, l *values) LimitUsage {
	u := LimitUsage{Limit: l.limit(t, scope), Used: l.natural(), Booked: l.natural()}
	if free := l.integer(); free == -1 {
		u.Free = now
	} else {
		u.Free = instant(free)
	}
	return u
}
