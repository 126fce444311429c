package wire

import (
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// What set.lua sets.
const (
	SetPause  = "pause"
	SetResume = "resume"
	SetLimits = "limits"
	SetMode   = "mode"
)

// Set changes what is set at run time.
type Set struct {
	What string // one of the constants
	// Name is that of a scope key, or of a scope; for a mode empty for all scopes.
	Name string
	// Value is the length of a pause, limits, or a mode's letter; empty takes back what was set.
	Value string
	Lasts int64  // of limits and modes; 0: until they are taken back
	Note  string // "by|why", without what separates settings
}

// Arguments are how set.lua is asked.
func (s Set) Arguments() []string { return []string{s.What, s.Name, s.Value, integer(s.Lasts), s.Note} }

// ReadSet reads what Arguments writes.
func ReadSet(args []string) (Set, error) {
	v := &Values{rest: args}
	s := Set{What: v.Text(), Name: v.Text(), Value: v.Text(), Lasts: v.Natural(), Note: v.Text()}
	return s, v.Err()
}

// WasSet is what set.lua answers: a pause's end, "value|ends" of other things, empty for nothing.
type WasSet struct {
	Stamp
	Before, InForce string
}

// Reply is how set.lua answers.
func (s WasSet) Reply() []any { return append(s.texts(), s.Before, s.InForce) }

// ReadWasSet reads the answer of set.lua.
func ReadWasSet(reply any) (WasSet, error) {
	v := Array(reply)
	s := WasSet{Stamp: v.Stamp(), Before: v.Text(), InForce: v.Text()}
	return s, v.Err()
}

// Report tells what an upstream said of a scope key.
type Report struct {
	Name string
	line.Report
}

// Arguments are how report.lua is asked.
func (r Report) Arguments() []string {
	limits := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		limits[i] = integers('/', l.Window, l.Units, l.Remaining)
	}
	return []string{r.Name, integers(' ', flag(r.Refused), r.Started, r.Wait, r.Floor), strings.Join(limits, ",")}
}

// ReadReport reads what Arguments writes.
func ReadReport(args []string) (Report, error) {
	v := &Values{rest: args}
	r := Report{Name: v.Text()}
	terms, limits := words(v.Text()), v.Text()
	r.Refused, r.Started, r.Wait, r.Floor = terms.Flag(), terms.Natural(), terms.Natural(), terms.Natural()
	v.wrong = v.wrong || terms.Err() != nil
	for text := range strings.SplitSeq(limits, ",") {
		if text == "" {
			continue
		}
		parts := &Values{rest: strings.Split(text, "/")}
		r.Limits = append(r.Limits,
			line.ReportedLimit{Window: parts.Natural(), Units: parts.Natural(), Remaining: parts.Integer()})
		v.wrong = v.wrong || parts.Err() != nil
	}
	return r, v.Err()
}

// Reported is what report.lua answers: the served share before and now, in thousandths, and until
// when the key is paused, 0 if it is not.
type Reported struct {
	Stamp
	Before, Served, Paused int64
}

// Reply is how report.lua answers.
func (r Reported) Reply() []any {
	return append(r.texts(), integer(r.Before), integer(r.Served), integer(r.Paused))
}

// ReadReported reads the answer of report.lua.
func ReadReported(reply any) (Reported, error) {
	v := Array(reply)
	r := Reported{Stamp: v.Stamp(), Before: v.Natural(), Served: v.Natural(), Paused: v.Natural()}
	return r, v.Err()
}
