package wire

import (
	"maps"
	"slices"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// Ended is a grant whose job has ended, or whose lease is renewed. Cooldowns has an entry by scope.
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

// Running ends or renews grants. Timed is true if flows pay for the time that they occupy places.
type Running struct {
	Renews, Timed bool
	Grants        []Ended
}

// Arguments returns the arguments of running.lua.
func (r Running) Arguments() []string {
	verb := runningDone
	if r.Renews {
		verb = runningRenew
	}
	return append([]string{verb + " " + integer(flag(r.Timed))}, endedTexts(r.Grants)...)
}

// ReadRunning reads the arguments of running.lua.
func ReadRunning(args []string) (Running, error) {
	v := &Values{rest: args}
	head := words(v.Text())
	verb := head.Text()
	r := Running{Renews: verb == runningRenew, Timed: head.Flag(), Grants: v.ended()}
	v.wrong = v.wrong || head.Err() != nil || verb != runningDone && verb != runningRenew
	return r, v.Err()
}

// Pull asks for at most a number of bookings and looks, after grants have ended. Delivers is true if the caller
// delivers jobs again that did not come to their slots.
type Pull struct {
	Bookings, Looks int64
	Delivers, Timed bool
	Ended           []Ended
}

// Arguments returns the arguments of pull.lua.
func (p Pull) Arguments() []string {
	return append([]string{integers(' ', p.Bookings, p.Looks, flag(p.Delivers), flag(p.Timed))}, endedTexts(p.Ended)...)
}

// ReadPull reads the arguments of pull.lua.
func ReadPull(args []string) (Pull, error) {
	v := &Values{rest: args}
	head := words(v.Text())
	p := Pull{Bookings: head.Natural(), Looks: head.Natural(), Delivers: head.Flag(), Timed: head.Flag(), Ended: v.ended()}
	v.wrong = v.wrong || head.Err() != nil
	return p, v.Err()
}

// Pulled is the answer of pull.lua.
type Pulled struct {
	Stamp
	Trouble string // what went wrong under some scope key; empty: nothing
	EndedAt int64  // the check at which its steps were taken; 0: they were not
	Held    []bool // of each grant that ended, whether it occupied its places until now
	Booked  []line.Told
	Overdue []line.Told
}

// Reply returns the reply of pull.lua.
func (p Pulled) Reply() []any {
	reply := append(p.texts(), integer(int64(len(p.Booked))), p.Trouble, integer(p.EndedAt))
	for _, held := range p.Held {
		reply = append(reply, integer(flag(held)))
	}
	for _, job := range slices.Concat(p.Booked, p.Overdue) {
		reply = append(reply, job.ID, integer(job.Slot), job.Lane)
	}
	return reply
}

// ReadPulled reads the reply of pull.lua to a call that ended a number of grants.
func ReadPulled(reply any, grants int) (Pulled, error) {
	v := Array(reply)
	p := Pulled{Stamp: v.Stamp()}
	booked := v.Natural()
	p.Trouble, p.EndedAt = v.Text(), v.Natural()
	p.Held = v.flags(grants)
	for n := int64(0); n < booked && v.More(); n++ {
		p.Booked = append(p.Booked, v.pulledJob())
	}
	v.wrong = v.wrong || int64(len(p.Booked)) < booked
	for v.More() {
		p.Overdue = append(p.Overdue, v.pulledJob())
	}
	return p, v.Err()
}

func (v *Values) pulledJob() line.Told {
	return line.Told{ID: v.Text(), Slot: v.Natural(), Lane: v.Text()}
}

func (v *Values) flags(n int) (flags []bool) {
	for range n {
		flags = append(flags, v.Flag())
	}
	return flags
}

// Settle corrects the charge of a grant, or turns the grant back into a booking.
type Settle struct {
	Grant  line.Grant
	Actual []int64
	Within int64 // of its start
	Share  int64 // of the flow
	Rebook bool
}

// Arguments returns the arguments of settle.lua.
func (s Settle) Arguments() []string {
	g := &s.Grant
	return []string{g.ID, g.Lane, costsText(g.Costs), costsText(s.Actual),
		integers(' ', g.Start, g.Decided, s.Within, s.Share, flag(s.Rebook), flag(g.Waited))}
}

// ReadSettle reads the arguments of settle.lua.
func ReadSettle(args []string) (Settle, error) {
	v := &Values{rest: args}
	s := Settle{Grant: line.Grant{ID: v.Text(), Lane: v.Text()}}
	s.Grant.Costs, s.Actual = v.costs(s.Grant.Lane), v.costs(s.Grant.Lane)
	terms := words(v.Text())
	s.Grant.Start, s.Grant.Decided, s.Within, s.Share, s.Rebook, s.Grant.Waited =
		terms.Natural(), terms.Natural(), terms.Natural(), terms.Natural(), terms.Flag(), terms.Flag()
	v.wrong = v.wrong || terms.Err() != nil
	return s, v.Err()
}

// Done is the answer of leave, running and settle: for each job or grant, whether it was done.
type Done struct {
	Stamp
	Done []bool
}

// Reply returns the scripts' reply.
func (d Done) Reply() []any {
	reply := d.texts()
	for _, done := range d.Done {
		reply = append(reply, flag(done))
	}
	return reply
}

// ReadDone reads the reply for a number of jobs or grants.
func ReadDone(reply any, want int) (Done, error) {
	v := Array(reply)
	d := Done{Stamp: v.Stamp(), Done: v.flags(want)}
	return d, v.Err()
}
