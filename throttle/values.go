package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// This file reads what the scripts say, value by value; request.go has what they are asked.

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

func (v *values) span() line.Span {
	span, err := line.ParseSpan(v.text())
	v.wrong = v.wrong || err != nil
	return span
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

// limit is a limit as the scripts count it.
func (v *values) limit(t *setup, scope string) Limit {
	counted, err := line.ParseLimit(v.text())
	if err != nil || max(counted.Length, counted.Precision) > maxWindow.Microseconds() {
		v.wrong = true
		return Limit{}
	}
	return t.limitAs(scope, t.scopeOf(scope).entered(counted))
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
func (t *setup) limitAs(scope string, limit Limit) Limit {
	for i := range t.scopes {
		for _, own := range t.scopes[i].Limits {
			if t.scopes[i].Name == scope && own.Units == limit.Units && own.span() == limit.span() &&
				own.precision() == limit.precision() {
				return own
			}
		}
	}
	for _, plain := range []Limit{Per(limit.Units, limit.Window), Running(limit.Units)} {
		if plain.span() == limit.span() && plain.precision() == limit.precision() {
			return plain
		}
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
func (t *setup) endAt(at stamp, v *values) error {
	err := v.end()
	if err == nil {
		t.line.heard(at)
	}
	return err
}

// done reads the answer of a script that says for each thing whether it was done.
func (t *setup) done(script string, reply any, want int) ([]bool, error) {
	done, _, err := t.doneAt(script, reply, want)
	return done, err
}

// doneAt also says when, on Redis' clock.
func (t *setup) doneAt(script string, reply any, want int) ([]bool, time.Time, error) {
	v := arrayOf(script, reply)
	at := v.stamp()
	done := make([]bool, want)
	for i := range done {
		done[i] = v.yes()
	}
	return done, at.now, t.endAt(at, v)
}
