package wire

import (
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// The settings that set.lua changes.
const (
	SetPause  = "pause"
	SetResume = "resume"
	SetLimits = "limits"
	SetMode   = "mode"
)

// Set changes a setting at run time.
type Set struct {
	What string // one of the constants
	// Name is the name of a scope key or of a scope; empty in a mode of all scopes.
	Name string
	// Value is the length of a pause, limits, or a mode's letter; empty resets the setting.
	Value string
	Lasts int64  // for limits and modes; 0: until a reset
	Note  string // "by|why", without separators of settings
}

// Arguments returns the arguments of set.lua.
func (s Set) Arguments() []string { return []string{s.What, s.Name, s.Value, integer(s.Lasts), s.Note} }

// ReadSet reads the arguments of set.lua.
func ReadSet(args []string) (Set, error) {
	v := &Values{rest: args}
	s := Set{What: v.Text(), Name: v.Text(), Value: v.Text(), Lasts: v.Natural(), Note: v.Text()}
	return s, v.Err()
}

// WasSet is the answer of set.lua: a pause's end, "value|ends|at|by|why" for limits or a mode, empty if nothing was
// set. ReadWas reads either.
type WasSet struct {
	Stamp
	Before, InForce string
}

// Reply returns the reply of set.lua.
func (s WasSet) Reply() []any { return append(s.texts(), s.Before, s.InForce) }

// ReadWasSet reads the reply of set.lua.
func ReadWasSet(reply any) (WasSet, error) {
	v := Array(reply)
	s := WasSet{Stamp: v.Stamp(), Before: v.Text(), InForce: v.Text()}
	return s, v.Err()
}

// Report is an upstream's report about a scope key.
type Report struct {
	Name string
	line.Report
}

// Arguments returns the arguments of report.lua.
func (r Report) Arguments() []string {
	limits := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		limits[i] = integers('/', l.Window, l.Units, l.Remaining)
	}
	return []string{r.Name, integers(' ', flag(r.Refused), r.Started, r.Wait, r.Floor, r.Margin),
		strings.Join(limits, ",")}
}

// ReadReport reads the arguments of report.lua.
func ReadReport(args []string) (Report, error) {
	v := &Values{rest: args}
	r := Report{Name: v.Text()}
	terms, limits := words(v.Text()), v.Text()
	r.Refused, r.Started, r.Wait = terms.Flag(), terms.Natural(), terms.Natural()
	r.Floor, r.Margin = terms.Natural(), terms.Natural()
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

// Reported is the answer of report.lua: the served share before and now, in thousandths, and when the key's
// pause ends, 0 if the key is not paused.
type Reported struct {
	Stamp
	Before, Served, Paused int64
}

// Reply returns the reply of report.lua.
func (r Reported) Reply() []any {
	return append(r.texts(), integer(r.Before), integer(r.Served), integer(r.Paused))
}

// ReadReported reads the reply of report.lua.
func ReadReported(reply any) (Reported, error) {
	v := Array(reply)
	r := Reported{Stamp: v.Stamp(), Before: v.Natural(), Served: v.Natural(), Paused: v.Natural()}
	return r, v.Err()
}
