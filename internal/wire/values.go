package wire

import (
	"errors"
	"strconv"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// ErrUnreadable is the error for a text that no script writes.
var ErrUnreadable = errors.New("wire: unreadable")

// Values are texts that are read one after the other. A malformed value reads as zero, and Err then returns an
// error.
type Values struct {
	rest  []string
	wrong bool
}

// Array reads a reply of Redis that is an array of texts and integers.
func Array(reply any) *Values {
	list, isArray := reply.([]any)
	v := &Values{rest: make([]string, len(list)), wrong: !isArray}
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

func words(text string) *Values { return &Values{rest: strings.Split(text, " ")} }

// More reports whether values are left to read.
func (v *Values) More() bool { return len(v.rest) > 0 && !v.wrong }

// Err returns ErrUnreadable if a value was malformed or missing, or if values are left over.
func (v *Values) Err() error {
	if v.wrong || len(v.rest) > 0 {
		return ErrUnreadable
	}
	return nil
}

// Refuse notes, if wrong is true, that a value was malformed.
func (v *Values) Refuse(wrong bool) { v.wrong = v.wrong || wrong }

// Text reads a value as it is.
func (v *Values) Text() string {
	if len(v.rest) == 0 {
		v.wrong = true
		return ""
	}
	text := v.rest[0]
	v.rest = v.rest[1:]
	return text
}

// Integer reads an integer.
func (v *Values) Integer() int64 {
	n, err := strconv.ParseInt(v.Text(), 10, 64)
	if err != nil {
		v.wrong = true
		return 0
	}
	return n
}

// Natural reads an integer that is not negative.
func (v *Values) Natural() int64 {
	n := v.Integer()
	if n < 0 {
		v.wrong = true
		return 0
	}
	return n
}

// Float reads a number.
func (v *Values) Float() float64 {
	x, err := strconv.ParseFloat(v.Text(), 64)
	v.wrong = v.wrong || err != nil
	return x
}

// Flag reads 1 for true and 0 for false.
func (v *Values) Flag() bool {
	n := v.Integer()
	v.wrong = v.wrong || n != 0 && n != 1
	return n == 1
}

func (v *Values) letter() byte {
	text := v.Text()
	if len(text) != 1 || text[0] < 'a' || text[0] > 'z' {
		v.wrong = true
		return 0
	}
	return text[0]
}

func (v *Values) limit() line.Limit {
	limit, err := line.ParseLimit(v.Text())
	v.wrong = v.wrong || err != nil
	return limit
}

// costs reads the text of costsText: one cost for each scope key of the lane.
func (v *Values) costs(lane string) []int64 {
	list := &Values{rest: strings.Split(v.Text(), ",")}
	var costs []int64
	for list.More() {
		costs = append(costs, list.Natural())
	}
	v.wrong = v.wrong || list.wrong
	for n := keysIn(lane); len(costs) > 0 && len(costs) < n; {
		costs = append(costs, costs[0])
	}
	return costs
}

// keysIn returns the number of a lane's costs: one for each scope key, and one if it has no scope key.
func keysIn(lane string) int {
	_, keys, _ := strings.Cut(lane, "|")
	return strings.Count(keys, ",") + 1
}

// costsText writes costs: as a single number if all are the same.
func costsText(costs []int64) string {
	for _, cost := range costs {
		if cost != costs[0] {
			return integers(',', costs...)
		}
	}
	return integers(',', costs[:min(1, len(costs))]...)
}

// integers writes numbers in the form that the scripts read.
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

func integer(n int64) string { return strconv.FormatInt(n, 10) }

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// Stamp is the first part of most answers.
type Stamp struct {
	Now  int64
	Next int64 // when to pull the line; 0: no job waits
}

// Stamp reads a Stamp.
func (v *Values) Stamp() Stamp { return Stamp{Now: v.Natural(), Next: v.Natural()} }

func (s Stamp) texts() []any { return []any{integer(s.Now), integer(s.Next)} }
