package wire

import (
	"maps"
	"slices"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// Ended is a grant whose job has ended, or runs on. Cooldowns are by scopes.
type Ended struct {
	ID        string
	Start     int64
	Cooldowns map[string]int64
}

func endedTexts(grants []Ended) []string {
	texts := make([]string, 0, 3*len(grants))
	for _, g := range grants {
		cooldowns := ""
		for _, scope := range slices.Sorted(maps.Keys(g.Cooldowns)) {
			cooldowns += scope + "=" + integer(g.Cooldowns[scope]) + ","
		}
		texts = append(texts, g.ID, integer(g.Start), cooldowns)
	}
	return texts
}

func (v *Values) ended() (grants []Ended) {
	for v.More() {
		g := Ended{ID: v.Text(), Start: v.Natural(), Cooldowns: make(map[string]int64)}
		for part := range strings.SplitSeq(strings.TrimSuffix(v.Text(), ","), ",") {
			if scope, us, is := strings.Cut(part, "="); is {
				length := words(us)
				g.Cooldowns[scope] = length.Natural()
				v.wrong = v.wrong || length.wrong
			}
		}
		grants = append(grants, g)
	}
	return grants
}

// The verbs of running.lua.
const (
	runningDone  = "done"
	runningRenew = "renew"
)

// Running ends or renews grants. Timed says that flows pay for the time that they occupy places.
type Running struct {
	Renews, Timed bool
	Grants        []Ended
}

// Arguments are how running.lua is asked.
func (r Running) Arguments() []string {
	verb := runningDone
	if r.Renews {
		verb = runningRenew
	}
	return append([]string{verb + " " + integer(flag(r.Timed))}, endedTexts(r.Grants)...)
}

// ReadRunning reads what Arguments writes.
func ReadRunning(args []string) (Running, error) {
	v := &Values{rest: args}
	head := words(v.Text())
	verb := head.Text()
	r := Running{Renews: verb == runningRenew, Timed: head.Flag(), Grants: v.ended()}
	v.wrong = v.wrong || head.Err() != nil || verb != runningDone && verb != runningRenew
	return r, v.Err()
}

// Pull asks for so many bookings and looks at most, after grants have ended. Brings says that
// the asker brings jobs that did not come to their slots.
type Pull struct {
	Bookings, Looks int64
	Brings, Timed   bool
	Ended           []Ended
}

// Arguments are how pull.lua is asked.
func (p Pull) Arguments() []string {
	return append([]string{integers(' ', p.Bookings, p.Looks, flag(p.Brings), flag(p.Timed))}, endedTexts(p.Ended)...)
}

// ReadPull reads what Arguments writes.
func ReadPull(args []string) (Pull, error) {
	v := &Values{rest: args}
	head := words(v.Text())
	p := Pull{Bookings: head.Natural(), Looks: head.Natural(), Brings: head.Flag(), Timed: head.Flag(), Ended: v.ended()}
	v.wrong = v.wrong || head.Err() != nil
	return p, v.Err()
}

// Pulled is what pull.lua answers.
type Pulled struct {
	Stamp
	Trouble string // what went wrong under some scope key; empty: nothing
	EndedAt int64  // the check at which its steps were taken; 0: they were not
	Held    []bool // of each grant that ended, whether it occupied its places until now
	Booked  []line.Told
	Overdue []line.Told
}

// Reply is how pull.lua answers.
func (p Pulled) Reply() []any {
	reply := append(p.texts(), integer(int64(len(p.Booked))), p.Trouble, integer(p.EndedAt))
	for _, held := range p.Held {
		reply = append(reply, integer(flag(held)))
	}
	for _, told := range slices.Concat(p.Booked, p.Overdue) {
		reply = append(reply, told.ID, integer(told.Slot), told.Lane)
	}
	return reply
}

// ReadPulled reads the answer of pull.lua, before which so many grants have ended.
func ReadPulled(reply any, grants int) (Pulled, error) {
	v := Array(reply)
	p := Pulled{Stamp: v.Stamp()}
	booked := v.Natural()
	p.Trouble, p.EndedAt = v.Text(), v.Natural()
	p.Held = v.flags(grants)
	for n := int64(0); n < booked && v.More(); n++ {
		p.Booked = append(p.Booked, v.told())
	}
	v.wrong = v.wrong || int64(len(p.Booked)) < booked
	for v.More() {
		p.Overdue = append(p.Overdue, v.told())
	}
	return p, v.Err()
}

func (v *Values) told() line.Told { return line.Told{ID: v.Text(), Slot: v.Natural(), Lane: v.Text()} }

func (v *Values) flags(n int) (flags []bool) {
	for range n {
		flags = append(flags, v.Flag())
	}
	return flags
}

// Settle corrects what a grant was charged, or makes a booking of it again.
type Settle struct {
	Grant  line.Grant
	Actual []int64
	Within int64 // of its start
	Share  int64 // of the flow
	Rebook bool
}

// Arguments are how settle.lua is asked.
func (s Settle) Arguments() []string {
	g := &s.Grant
	return []string{g.ID, g.Lane, costsText(g.Costs), costsText(s.Actual),
		integers(' ', g.Start, g.Decided, s.Within, s.Share, flag(s.Rebook))}
}

// ReadSettle reads what Arguments writes.
func ReadSettle(args []string) (Settle, error) {
	v := &Values{rest: args}
	s := Settle{Grant: line.Grant{ID: v.Text(), Lane: v.Text()}}
	s.Grant.Costs, s.Actual = v.costs(s.Grant.Lane), v.costs(s.Grant.Lane)
	terms := words(v.Text())
	s.Grant.Start, s.Grant.Decided, s.Within, s.Share, s.Rebook =
		terms.Natural(), terms.Natural(), terms.Natural(), terms.Natural(), terms.Flag()
	v.wrong = v.wrong || terms.Err() != nil
	return s, v.Err()
}

// Done is how leave, running and settle answer: whether each thing was done.
type Done struct {
	Stamp
	Done []bool
}

// Reply is how the scripts write it.
func (d Done) Reply() []any {
	reply := d.texts()
	for _, done := range d.Done {
		reply = append(reply, flag(done))
	}
	return reply
}

// ReadDone reads the answer for so many things.
func ReadDone(reply any, want int) (Done, error) {
	v := Array(reply)
	d := Done{Stamp: v.Stamp(), Done: v.flags(want)}
	return d, v.Err()
}
