package calendar

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The most that a ramp has of steps, and of periods in each of them.
const (
	MostSteps = 100
	mostEvery = 366
)

// mostUnits is the largest number of units that Lua counts exactly.
const mostUnits = int64(1) << 53

// Steps are units that grow from period to period. The slice is never changed.
type Steps struct {
	Units []int64 // of each step, each more than the one before; those of the last hold for ever
	First int64   // the period in which the first step begins; before it there are no units
	Every int64   // how many periods a step lasts
	Held  int64   // the period in which the units stopped growing; 0: they grow
}

// Of returns the units of a period.
func (s Steps) Of(period int64) int64 {
	if s.Held > 0 {
		period = min(period, s.Held)
	}
	if period < s.First {
		return 0
	}
	return s.Units[min((period-s.First)/s.Every, int64(len(s.Units)-1))]
}

// Takes returns the first period from one on that has at least so many units; false if none has.
func (s Steps) Takes(units, from int64) (period int64, takes bool) {
	if s.Of(from) >= units {
		return from, true
	}
	i, _ := slices.BinarySearch(s.Units, units)
	if i == len(s.Units) {
		return 0, false
	}
	period = s.First + int64(i)*s.Every
	return period, s.Held == 0 || period <= s.Held
}

// Last returns the units of the last step.
func (s Steps) Last() int64 { return s.Units[len(s.Units)-1] }

// Ramp is a calendar whose periods have growing units.
type Ramp struct {
	*Calendar
	Steps
}

// ParseRamp reads the units of each step, a unit of a calendar, and when the first step begins, such as
// "50 100 200/day every 2d from 2026-12-01 held 2026-12-04 @UTC"; or a rule, such as "50/day x2 max 20000 from …" or
// "50/day +50 max 500 from …".
func ParseRamp(text string) (*Ramp, error) {
	body, zone, _ := strings.Cut(text, "@")
	steps, rest, isOf := strings.Cut(body, "/")
	words := strings.Fields(rest)
	if !isOf || len(words) == 0 {
		return nil, fmt.Errorf("want units and a period, such as 50 100 200/day from 2026-12-01 @UTC")
	}
	of, err := Parse(words[0] + "@" + strings.TrimSpace(zone))
	if err != nil {
		return nil, err
	}
	t, err := termsOf(words[1:])
	if err != nil {
		return nil, err
	}
	r := &Ramp{Calendar: of, Steps: Steps{Every: 1}}
	if r.Units, err = unitsOf(strings.Fields(steps)); err != nil {
		return nil, err
	}
	if err := r.grow(t); err != nil {
		return nil, err
	}
	if err := r.place(t); err != nil {
		return nil, err
	}
	return r, nil
}

// terms are the words of a ramp by what stands before them; a rule has nothing before it.
type terms map[string]string

const ofRule = ""

func termsOf(words []string) (terms, error) {
	t := make(terms)
	for i := 0; i < len(words); i++ {
		name := words[i]
		switch {
		case name == "every" || name == "max" || name == "from" || name == "held":
			if i++; i == len(words) {
				return nil, fmt.Errorf("nothing follows %q", name)
			}
		case name[0] == 'x' || name[0] == '+':
			name = ofRule
		default:
			return nil, fmt.Errorf("%q is none of x2, +50, every, max, from, held", name)
		}
		if _, twice := t[name]; twice {
			return nil, fmt.Errorf("%q is more than a ramp may have of its kind", words[i])
		}
		t[name] = words[i]
	}
	return t, nil
}

// unitsOf reads a list of steps.
func unitsOf(words []string) (units []int64, err error) {
	for i, word := range words {
		n, err := stepOf(word)
		if err != nil {
			return nil, err
		}
		if i > 0 && n <= units[i-1] {
			return nil, fmt.Errorf("a step of %d units is no more than the one before", n)
		}
		units = append(units, n)
	}
	if len(units) == 0 || len(units) > MostSteps {
		return nil, fmt.Errorf("%d steps are not between 1 and %d", len(units), MostSteps)
	}
	return units, nil
}

func stepOf(word string) (int64, error) {
	n, err := strconv.ParseUint(word, 10, 63)
	if err != nil || n == 0 || int64(n) > mostUnits {
		return 0, fmt.Errorf("units %q are no integer between 1 and %d", word, mostUnits)
	}
	return int64(n), nil
}

// grow writes a rule out as a list.
func (r *Ramp) grow(t terms) error {
	rule, has := t[ofRule]
	most, hasMost := t["max"]
	switch {
	case !has && !hasMost:
		return nil
	case !has:
		return fmt.Errorf("max %s without a rule, such as x2 or +50", most)
	case !hasMost:
		return fmt.Errorf("%s never ends: want a max, such as x2 max 20000", rule)
	case len(r.Units) > 1:
		return fmt.Errorf("a list of steps has no rule: want one of the two")
	}
	next, err := ruleOf(rule)
	if err != nil {
		return err
	}
	last, err := stepOf(most)
	if err != nil {
		return err
	}
	if last <= r.Units[0] {
		return fmt.Errorf("max %d is no more than the first step", last)
	}
	for n := r.Units[0]; n < last; r.Units = append(r.Units, n) {
		if len(r.Units) == MostSteps {
			return fmt.Errorf("%s does not come to max %d within %d steps", rule, last, MostSteps)
		}
		n = min(max(next(n), n+1), last)
	}
	return nil
}

// The factor of a rule has up to three decimals.
const (
	decimals   = 3
	thousand   = 1000
	mostFactor = 1000
)

// ruleOf reads a rule. It returns the step after one, rounded down.
func ruleOf(text string) (next func(int64) int64, err error) {
	if more, is := strings.CutPrefix(text, "+"); is {
		n, err := stepOf(more)
		return func(units int64) int64 { return units + n }, err
	}
	whole, fraction, _ := strings.Cut(text[1:], ".")
	f, err := strconv.ParseUint(whole+(fraction + "000")[:max(decimals, len(fraction))], 10, 63)
	if err != nil || whole == "" || len(fraction) > decimals || f <= thousand || f > mostFactor*thousand {
		return nil, fmt.Errorf("%q is no factor: want a number above 1, of up to %d, with up to %d decimals, such as x1.5",
			text, mostFactor, decimals)
	}
	factor := int64(f)
	return func(units int64) int64 { return units/thousand*factor + units%thousand*factor/thousand }, nil
}

// place reads when the steps begin, how long each lasts, and since when they are held.
func (r *Ramp) place(t terms) error {
	if text, has := t["every"]; has {
		number, is := strings.CutSuffix(text, r.letters())
		n, err := strconv.ParseUint(number, 10, 63)
		if !is || err != nil || n == 0 || n > mostEvery {
			return fmt.Errorf("%q is not how long a step lasts: want 1%s to %d%s", text, r.letters(), mostEvery, r.letters())
		}
		r.Every = int64(n)
	}
	from, has := t["from"]
	if !has {
		return fmt.Errorf("no date on which it begins: want such as from 2026-12-01")
	}
	day, err := dayOf(from)
	if err != nil {
		return err
	}
	r.First = r.since(day)
	if held, has := t["held"]; has {
		if day, err = dayOf(held); err != nil {
			return err
		}
		r.Held = r.since(day+1) - 1
	}
	return nil
}

// letters stand for the calendar's unit after a number.
func (c *Calendar) letters() string {
	return map[string]string{Day: "d", Week: "w", Month: "mo"}[c.Unit]
}

// The years in which a ramp may begin or be held.
const (
	firstYear = 1970
	lastYear  = 2199
)

// dayOf reads a date.
func dayOf(text string) (day int64, err error) {
	date, err := time.Parse(time.DateOnly, text)
	if err != nil || date.Year() < firstYear || date.Year() > lastYear {
		return 0, fmt.Errorf("%q is no date between %d and %d: want such as 2026-12-01", text, firstYear, lastYear)
	}
	return days(date), nil
}

// dateOf returns the date on which a period begins.
func (c *Calendar) dateOf(period int64) string {
	return time.Unix((c.day(period)-unixDays)*daySeconds, 0).UTC().Format(time.DateOnly)
}

// since returns the first period that begins on a day or later.
func (c *Calendar) since(day int64) int64 {
	period := c.Period(time.Unix((day-unixDays)*daySeconds, 0))
	for c.day(period) >= day {
		period--
	}
	for c.day(period) < day {
		period++
	}
	return period
}

// String is the text that ParseRamp reads, with all steps.
func (r *Ramp) String() string {
	steps := make([]string, len(r.Units))
	for i, units := range r.Units {
		steps[i] = strconv.FormatInt(units, 10)
	}
	begins, _, _ := strings.Cut(r.Calendar.String(), "@")
	text := strings.Join(steps, " ") + "/" + begins
	if r.Every > 1 {
		text += " every " + strconv.FormatInt(r.Every, 10) + r.letters()
	}
	text += " from " + r.dateOf(r.First)
	if r.Held > 0 {
		text += " held " + r.dateOf(r.Held)
	}
	return text + " @" + r.Zone
}

// HeldAt returns the ramp that keeps the step of an instant; itself if it is held.
func (r *Ramp) HeldAt(at time.Time) *Ramp {
	held := *r
	held.Held = cmp.Or(r.Held, r.Period(at))
	return &held
}

// ContinuedAt returns the ramp that goes on at an instant where it was held; itself if it is not held.
func (r *Ramp) ContinuedAt(at time.Time) *Ramp {
	continued := *r
	if r.Held > 0 {
		continued.First += max(0, r.Period(at)-r.Held)
		continued.Held = 0
	}
	return &continued
}

var knownRamps Memory[Ramp]

// RampOf is ParseRamp with a memory.
func RampOf(text string) (*Ramp, error) { return knownRamps.Read(text, ParseRamp) }
