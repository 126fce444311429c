package throttletest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// What the scripts keep to themselves: how far a clock that stepped back is
// waited for, how long a grant is known by its nonce, and how long the same
// answer is given for it.
const (
	clockPatience = 30 * time.Second
	grantKept     = 60 * time.Second
	replayWithin  = time.Second
)

// Model is the algorithm in plain Go: brute force over short lists, with no
// totals kept, no trimming and no expiry. It is the oracle that the scripts are
// compared with step by step. It expects jobs that a Throttle would accept. Not
// safe for use by several goroutines.
type Model struct {
	scopes   []throttle.Scope
	options  throttle.Options
	grace    time.Duration
	books    map[scopeKey]*book
	records  map[string]record
	granted  map[string]record // all that ever were, by job and nonce
	bookings map[string]booking
	line     *line
	set      settings
}

type scopeKey struct{ scope, key string }

// record is a job's grant.
type record struct {
	start, weight int64
	nonce         string
	names         names // of the ledgers it was made in
	settled       bool
}

// names tell what a booking and a charge are entered in.
type names struct{ keys, windows string }

// booking is a job's slot.
type booking struct {
	slot, weight, arrival int64
	holder                int
	keys                  string // of its scopes
	lane                  throttle.Lane
}

// NewModel returns an empty model of a throttle with these scopes and options, of
// which it reads those of the calendar and the line.
func NewModel(scopes []throttle.Scope, options throttle.Options) *Model {
	if options.Grace == 0 {
		options.Grace = throttle.DefaultGrace
	}
	if options.Lookahead == 0 {
		options.Lookahead = throttle.DefaultLookahead
	}
	if options.FairScope == "" {
		options.FairScope = throttle.DefaultFairScope
	}
	if options.SettleWithin == 0 {
		options.SettleWithin = throttle.DefaultSettleWithin
	}
	return &Model{
		scopes:   scopes,
		options:  options,
		grace:    options.Grace,
		books:    make(map[scopeKey]*book),
		records:  make(map[string]record),
		granted:  make(map[string]record),
		set:      newSettings(),
		bookings: make(map[string]booking),
		line:     newLine(),
	}
}

// visit is one call: the ledgers it is about and its instant.
type visit struct {
	model   *Model
	now     int64
	scopes  []scopeKey
	met     []scopeKey // also those that nothing is counted for
	ledgers []*ledger
	holds   []throttle.Hold
	rulings []ruling
	names   names
	lane    throttle.Lane
	opens   int64 // when the last pause ends
	closer  int   // what it is of, as place tells it
	charged int64 // units
}

func (m *Model) visit(now time.Time, keys map[string]string) *visit {
	v := &visit{model: m, now: now.UnixMicro()}
	for _, scope := range m.scopes {
		if key, has := keys[scope.Name]; has || scope.Name == throttle.Global {
			v.add(scope, key)
		}
	}
	v.lane = m.laneOf(keys)
	for _, k := range v.scopes {
		if b := m.books[k]; b != nil {
			v.now = b.now(v.now, now.UnixMicro())
		}
	}
	v.pauses()
	return v
}

func (v *visit) add(scope throttle.Scope, key string) {
	k := scopeKey{scope.Name, key}
	v.met = append(v.met, k)
	rulings, _, _ := v.model.rule(scope, key)
	if len(rulings) == 0 {
		return
	}
	v.scopes = append(v.scopes, k)
	v.names.keys += fmt.Sprintf("%q %q,", scope.Name, key)
	v.ledgers = append(v.ledgers, v.model.book(k, rulings, v.now)...)
	for _, r := range rulings {
		v.rulings = append(v.rulings, r)
		v.holds = append(v.holds, throttle.Hold{Scope: scope.Name, Key: key, Limit: r.limit})
		v.names.windows += fmt.Sprintf("%q %q %s,", scope.Name, key, r.limit.Window)
	}
}

// written notes that the call changed something: time does not go back behind it,
// and ledgers that it does not know are not counted on.
func (v *visit) written() {
	i := 0
	for _, k := range v.scopes {
		var own []*ledger
		for ; i < len(v.ledgers) && v.holds[i].Scope == k.scope; i++ {
			own = append(own, v.ledgers[i])
		}
		v.model.write(k, own, v.charged, v.now)
	}
}

// place is the earliest start from from on with room for weight in all ledgers that
// hold jobs back, and what moved it last: a ledger (from 1 on), or behind them a scope
// key that is paused.
func (v *visit) place(weight, from int64, spentOnly bool) (start int64, holder int) {
	start = from
	if v.opens > start {
		start, holder = v.opens, v.closer
		if holder <= len(v.ledgers) {
			return start, holder // a limit of 0
		}
	}
	for agreed, i := 0, 0; agreed < len(v.ledgers); i = (i + 1) % len(v.ledgers) {
		if v.rulings[i].free() {
			agreed++
			continue
		}
		if at := v.ledgers[i].earliest(weight, start, v.now, spentOnly); at > start {
			start, holder, agreed = at, i+1, 0
		}
		agreed++
	}
	return start, holder
}

func (v *visit) spend(start, units int64) {
	v.charged += max(0, units)
	for _, l := range v.ledgers {
		l.add(l.spent, start, units)
	}
}

func (v *visit) book(start, units int64) {
	for _, l := range v.ledgers {
		l.add(l.booked, start, units)
	}
}

func (v *visit) unspend(start, units int64) {
	for _, l := range v.ledgers {
		if l.bucket(start) > l.edge(v.now) {
			l.add(l.spent, start, -units)
		}
	}
}

func (v *visit) unbook(start, units int64) {
	for _, l := range v.ledgers {
		if l.bucket(start) > l.stale(v.now) {
			l.add(l.booked, start, -units)
		}
	}
}

// grant is what a job was granted under this nonce, where that is still known.
func (v *visit) grant(job throttle.Job) (record, bool) {
	r, known := v.model.records[job.ID]
	return r, known && r.nonce == job.Nonce && r.names == v.names && !r.settled && r.start+grantKept.Microseconds() >= v.now
}

// booking is a job's slot, where it still holds.
func (v *visit) booking(id string) (booking, bool) {
	b, known := v.model.bookings[id]
	return b, known && b.keys == v.names.keys && b.slot+v.model.grace.Microseconds() >= v.now
}

func (v *visit) answer(job throttle.Job, outcome throttle.Outcome, start int64, holder int) throttle.Reservation {
	r := throttle.Reservation{
		Job: job, Outcome: outcome,
		Now: time.UnixMicro(v.now), Start: time.UnixMicro(start),
	}
	if r.Hold = v.hold(holder); r.Hold != nil {
		r.Hold.Until = r.Start
	}
	return r
}

func (v *visit) hold(holder int) *throttle.Hold {
	switch n := holder - len(v.holds); {
	case holder == 0 || n > len(v.met):
		return nil
	case n > 0:
		return &throttle.Hold{Scope: v.met[n-1].scope, Key: v.met[n-1].key, Paused: true}
	}
	hold, l := v.holds[holder-1], v.ledgers[holder-1]
	hold.Used = l.total(l.spent, l.edge(v.now))
	hold.Booked = l.total(l.booked, l.stale(v.now))
	return &hold
}

// inLine answers a job that waits. The model guesses no start.
func (v *visit) inLine(job throttle.Job, ahead int64) throttle.Reservation {
	return throttle.Reservation{Job: job, Outcome: throttle.Waiting, Now: time.UnixMicro(v.now), Ahead: ahead}
}

// promise keeps a job's booking, overdue half a second after its slot.
func (m *Model) promise(id string, b booking) {
	m.bookings[id] = b
	m.line.agenda["="+id] = b.slot + overdueAfter.Microseconds()
}

func (m *Model) forget(id string) {
	delete(m.bookings, id)
	delete(m.line.agenda, "="+id)
}

// decision is what becomes of a job.
type decision struct {
	outcome   throttle.Outcome
	start     int64 // negative while there is none
	holder    int
	hadTurn   bool   // it was booked before, in time or not
	freed     bool   // a charge was taken back
	changed   bool   // something was taken back or charged
	refused   bool   // it cannot start by its deadline
	contested string // the scope key that holds others, who are before it
}

// Reserve decides for a job as reserve.lua does.
func (m *Model) Reserve(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	if err := m.fits(job); err != nil {
		return throttle.Reservation{}, err
	}
	v := m.visit(now, job.Keys)
	d, known := v.takeUp(job)
	if known != nil {
		return *known, nil
	}
	left := int64(math.MaxInt64)
	if !job.Deadline.IsZero() {
		// Rounded to what Throttle tells the script: the time left by the clock of
		// the caller, which in a test is the same clock.
		left = max(0, job.Deadline.Sub(now).Microseconds())
	}
	v.decide(job, left, &d)
	r := v.answer(job, d.outcome, max(v.now, d.start), d.holder)
	if d.outcome == throttle.Granted {
		r.Shadow = v.foresee(job.Weight, d.start)
	}
	if d.outcome == throttle.Waiting && !d.refused {
		r = v.inLine(job, m.line.lane(v.lane).ahead(job, d.hadTurn))
	}
	v.keep(job, d)
	if d.refused {
		return throttle.Reservation{}, &throttle.DeadlineError{Job: job.ID, Deadline: job.Deadline, Start: r.Start, Hold: r.Hold}
	}
	if d.outcome == throttle.Waiting || d.outcome == throttle.Granted && d.hadTurn {
		r.Next = m.line.next(v.now)
	}
	return r, nil
}

// takeUp looks at what the job holds already: an answer that stands, or units that
// are taken back for it to be decided anew.
func (v *visit) takeUp(job throttle.Job) (d decision, known *throttle.Reservation) {
	d = decision{outcome: throttle.Waiting, start: -1}
	_, d.hadTurn = v.model.bookings[job.ID]
	wait := job.MaxWait.Microseconds()
	if b, holds := v.booking(job.ID); holds {
		if v.now < b.slot-wait {
			r := v.answer(job, throttle.Booked, b.slot, b.holder)
			return d, &r
		}
		v.unbook(b.slot, b.weight)
		d.changed = true
		d.start, d.holder = v.place(job.Weight, max(v.now, b.slot), true)
		if d.start > v.now+wait {
			d.start = -1
		}
	} else if g, granted := v.grant(job); granted {
		if v.now-g.start <= replayWithin.Microseconds() {
			r := v.answer(job, throttle.Granted, g.start, 0)
			r.Replayed = true
			return d, &r
		}
		v.unspend(g.start, g.weight)
		d.changed, d.freed = true, true
	}
	return d, nil
}

// decide finds a start for the job, if it is its turn, and what that means. left is
// how far off the start may be.
func (v *visit) decide(job throttle.Job, left int64, d *decision) {
	behind := len(v.model.line.lane(v.lane).waiting) > 0 && !d.hadTurn
	if d.start < 0 && (!behind || left < math.MaxInt64) {
		d.start, d.holder = v.place(job.Weight, v.now, false)
	}
	d.refused = d.start-v.now > left
	if d.start >= 0 && !behind && !d.hadTurn {
		d.contested = v.contested()
	}
	switch {
	case d.refused, behind, d.contested != "":
	case d.start <= v.now+job.MaxWait.Microseconds() && !job.Plan:
		d.outcome = throttle.Granted
	case d.start <= v.now+v.model.options.Lookahead.Microseconds() && (d.hadTurn || len(v.model.line.ready) == 0):
		d.outcome = throttle.Booked
	}
}

// keep writes a decision down.
func (v *visit) keep(job throttle.Job, d decision) {
	m, lane := v.model, v.model.line.lane(v.lane)
	stood, before := lane.index(job) >= 0, m.bookings[job.ID]
	if r, known := m.records[job.ID]; known && !job.Plan {
		r.settled = true
		m.records[job.ID] = r
	}
	m.forget(job.ID)
	if d.freed {
		v.makeRoom()
	}
	switch {
	case d.outcome == throttle.Granted:
		v.spend(d.start, job.Weight)
		m.records[job.ID] = record{start: d.start, weight: job.Weight, nonce: job.Nonce, names: v.names}
		m.granted[job.ID+" "+job.Nonce] = m.records[job.ID]
	case d.outcome == throttle.Booked:
		v.book(d.start, job.Weight)
		b := booking{slot: d.start, weight: job.Weight, arrival: v.now, holder: d.holder, keys: v.names.keys, lane: v.lane}
		if d.hadTurn {
			b.arrival = before.arrival
		}
		m.promise(job.ID, b)
	case d.refused:
	case stood:
		m.line.enlist(lane)
	case d.hadTurn:
		m.line.join(lane, waiter{job.ID, job.Weight, before.arrival})
	default:
		if d.contested != "" {
			m.line.hold(d.contested, lane, place{max(m.line.time, m.line.tags[fairOf(v.lane)]), lane.tail(v.now)}, v.now)
			m.line.agenda["&"+d.contested] = soonest(m.line.agenda, "&"+d.contested, v.now)
			m.line.elect(fairOf(v.lane))
		}
		m.line.join(lane, waiter{job.ID, job.Weight, lane.tail(v.now)})
	}
	if stood && (d.refused || d.outcome == throttle.Granted) {
		m.line.leave(lane, job)
	}
	if d.changed || d.outcome != throttle.Waiting {
		v.written()
	}
}

// Peek says what Reserve would answer to a new job as peek.lua does.
func (m *Model) Peek(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	if err := m.fits(job); err != nil {
		return throttle.Reservation{}, err
	}
	v := m.visit(now, job.Keys)
	start, holder := v.place(job.Weight, v.now, false)
	lane := m.line.lane(v.lane)
	outcome := throttle.Waiting
	switch {
	case len(lane.waiting) > 0, v.contested() != "":
	case start <= v.now+job.MaxWait.Microseconds():
		outcome = throttle.Granted
	case start <= v.now+m.options.Lookahead.Microseconds() && len(m.line.ready) == 0:
		outcome = throttle.Booked
	}
	if outcome == throttle.Waiting {
		// A forecast follows, which looks at the ledgers of all who wait.
		for _, other := range m.line.lanes {
			if len(other.waiting) > 0 {
				m.visit(now, other.keys)
			}
		}
		return v.inLine(job, lane.units()), nil
	}
	r := v.answer(job, outcome, start, holder)
	if outcome == throttle.Granted {
		r.Shadow = v.foresee(job.Weight, start)
	}
	return r, nil
}

// Cancel gives back what a job holds as cancel.lua does.
func (m *Model) Cancel(now time.Time, job throttle.Job) (bool, error) {
	return m.giveBack(now, job, false)
}

// Release keeps a grant as a booking as cancel.lua does.
func (m *Model) Release(now time.Time, job throttle.Job) (bool, error) {
	return m.giveBack(now, job, true)
}

func (m *Model) giveBack(now time.Time, job throttle.Job, keep bool) (bool, error) {
	v := m.visit(now, job.Keys)
	b, holds := v.booking(job.ID)
	if holds && keep {
		return true, nil
	}
	lane := m.line.lane(v.lane)
	g, granted := v.grant(job)
	granted = granted && !holds && g.start > v.now
	stands := !keep && lane.index(job) >= 0
	switch {
	case holds:
		v.unbook(b.slot, b.weight)
	case granted:
		v.unspend(g.start, g.weight)
	}
	if holds || granted {
		v.written()
	}
	if b, known := m.bookings[job.ID]; known && !keep && b.lane == v.lane {
		m.line.refund(fairOf(v.lane), float64(b.weight)/m.share(fairOf(v.lane)))
	}
	if granted || !keep {
		m.forget(job.ID)
	}
	if granted {
		g.settled = true
		m.records[job.ID] = g
	}
	if granted && keep {
		v.book(g.start, g.weight)
		m.promise(job.ID, booking{slot: g.start, weight: g.weight, arrival: v.now, keys: v.names.keys, lane: v.lane})
	} else if stands {
		m.line.leave(lane, job)
	}
	if holds || stands {
		v.makeRoom()
		if len(lane.waiting) > 0 {
			m.line.enlist(lane)
		}
		m.line.elect(fairOf(v.lane))
	}
	return holds || granted || stands, nil
}

// Usage tells what a scope key has used and promised as usage.lua does.
func (m *Model) Usage(now time.Time, scope, key string) (throttle.Usage, error) {
	v, inForce := m.visitOne(now, scope, key)
	usage := throttle.Usage{Scope: scope, Key: key, Now: time.UnixMicro(v.now)}
	for _, limit := range inForce {
		i := slices.IndexFunc(v.rulings, func(r ruling) bool { return r.limit == limit })
		if i < 0 {
			usage.Limits = append(usage.Limits, throttle.LimitUsage{Limit: limit, Free: usage.Now})
			continue
		}
		l := v.ledgers[i]
		state := throttle.LimitUsage{Limit: limit, Used: l.total(l.spent, l.edge(v.now)), Booked: l.total(l.booked, l.stale(v.now))}
		if limit.Units > 0 {
			state.Free = time.UnixMicro(l.earliest(1, v.now, v.now, false))
		}
		usage.Limits = append(usage.Limits, state)
	}
	return usage, nil
}

// Count counts the units of a past interval as count.lua does, in the ledger of
// the finest precision that reaches back far enough.
func (m *Model) Count(now time.Time, scope, key string, from, to time.Duration) (int64, error) {
	v, _ := m.visitOne(now, scope, key)
	finest := -1
	for i, r := range v.rulings {
		if r.limit.Window >= from && (finest < 0 || precision(r.limit) < precision(v.rulings[finest].limit)) {
			finest = i
		}
	}
	if finest < 0 {
		return 0, &throttle.InvalidJobError{Field: "interval", Value: from}
	}
	var units int64
	l := v.ledgers[finest]
	for at, spent := range l.spent {
		if at > l.edge(v.now) && at < v.now-to.Microseconds() && at+l.precision > v.now-from.Microseconds() {
			units += spent
		}
	}
	return units, nil
}

// visitOne looks at one scope key.
func (m *Model) visitOne(now time.Time, name, key string) (*visit, []throttle.Limit) {
	i := slices.IndexFunc(m.scopes, func(s throttle.Scope) bool { return s.Name == name })
	alone := *m
	alone.scopes = m.scopes[i : i+1]
	_, inForce, _ := m.rule(m.scopes[i], key)
	return alone.visit(now, map[string]string{name: key}), inForce
}
