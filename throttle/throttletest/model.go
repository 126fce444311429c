package throttletest

import (
	"fmt"
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
// totals, no trimming and no expiry. It is the oracle that the scripts are
// compared with step by step. It expects jobs that a Throttle would accept. Not
// safe for use by several goroutines.
type Model struct {
	scopes  []throttle.Scope
	grace   time.Duration
	seen    map[scopeKey]int64
	ledgers map[ledgerKey]*ledger
	records map[string]record
}

type scopeKey struct{ scope, key string }

type ledgerKey struct {
	scopeKey
	window time.Duration
}

// record is a job's reservation.
type record struct {
	granted bool
	start   int64
	weight  int64
	nonce   string
	holder  int
	names   string // of the ledgers it was made in
}

// NewModel returns an empty model of a throttle with these scopes and grace.
func NewModel(scopes []throttle.Scope, grace time.Duration) *Model {
	return &Model{
		scopes:  scopes,
		grace:   grace,
		seen:    make(map[scopeKey]int64),
		ledgers: make(map[ledgerKey]*ledger),
		records: make(map[string]record),
	}
}

// visit is one call: the ledgers it is about and its instant.
type visit struct {
	model   *Model
	now     int64
	scopes  []scopeKey
	ledgers []*ledger
	holds   []throttle.Hold
	names   string
}

func (m *Model) visit(now time.Time, keys map[string]string) *visit {
	v := &visit{model: m, now: now.UnixMicro()}
	for _, scope := range m.scopes {
		if key, has := keys[scope.Name]; has || scope.Name == throttle.Global {
			v.add(scope, key)
		}
	}
	for _, k := range v.scopes {
		if seen := m.seen[k]; seen > v.now && seen-now.UnixMicro() <= clockPatience.Microseconds() {
			v.now = seen
		}
	}
	return v
}

func (v *visit) add(scope throttle.Scope, key string) {
	k := scopeKey{scope.Name, key}
	limited := false
	for _, limit := range scope.Limits {
		if limit.Units == throttle.Unlimited {
			continue
		}
		limited = true
		name := ledgerKey{k, limit.Window}
		if v.model.ledgers[name] == nil {
			v.model.ledgers[name] = newLedger(limit, v.model.grace)
		}
		v.ledgers = append(v.ledgers, v.model.ledgers[name])
		v.holds = append(v.holds, throttle.Hold{Scope: scope.Name, Key: key, Limit: limit})
		v.names += fmt.Sprintf("%q %q %s,", scope.Name, key, limit)
	}
	if limited {
		v.scopes = append(v.scopes, k)
	}
}

// written notes that the call changed something: time does not go back behind it.
func (v *visit) written() {
	for _, k := range v.scopes {
		v.model.seen[k] = v.now
	}
}

// place is the earliest start from from on with room for weight in all ledgers,
// and the one (from 1 on) that moved it last.
func (v *visit) place(weight, from int64, spentOnly bool) (start int64, holder int) {
	start = from
	for agreed, i := 0, 0; agreed < len(v.ledgers); i = (i + 1) % len(v.ledgers) {
		if at := v.ledgers[i].earliest(weight, start, v.now, spentOnly); at > start {
			start, holder, agreed = at, i+1, 0
		}
		agreed++
	}
	return start, holder
}

func (v *visit) spend(start, units int64) {
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

// record is the job's reservation where it still holds.
func (v *visit) record(id string) (record, bool) {
	r, known := v.model.records[id]
	kept := grantKept
	if !r.granted {
		kept = v.model.grace
	}
	if !known || r.names != v.names || r.start+kept.Microseconds() < v.now {
		return record{}, false
	}
	return r, true
}

func (v *visit) answer(job throttle.Job, outcome throttle.Outcome, start int64, holder int) throttle.Reservation {
	r := throttle.Reservation{
		Job: job, Outcome: outcome,
		Now: time.UnixMicro(v.now), Start: time.UnixMicro(start),
	}
	if holder > 0 {
		hold := v.holds[holder-1]
		hold.Used = v.ledgers[holder-1].total(v.ledgers[holder-1].spent, v.ledgers[holder-1].edge(v.now))
		hold.Booked = v.ledgers[holder-1].total(v.ledgers[holder-1].booked, v.ledgers[holder-1].stale(v.now))
		hold.Until = r.Start
		r.Hold = &hold
	}
	return r
}

// Reserve decides for a job as reserve.lua does.
func (m *Model) Reserve(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	v := m.visit(now, job.Keys)
	wait := job.MaxWait.Microseconds()
	known, found := v.record(job.ID)
	start, holder, taken := int64(-1), 0, false
	switch {
	case found && known.granted && known.nonce == job.Nonce:
		if v.now-known.start <= replayWithin.Microseconds() {
			r := v.answer(job, throttle.Granted, known.start, 0)
			r.Replayed = true
			return r, nil
		}
		v.unspend(known.start, known.weight)
		taken = true
	case found && !known.granted:
		if v.now < known.start-wait {
			return v.answer(job, throttle.Booked, known.start, known.holder), nil
		}
		v.unbook(known.start, known.weight)
		taken = true
		start, holder = v.place(job.Weight, max(v.now, known.start), true)
		if start > v.now+wait {
			start = -1
		}
	}
	if start < 0 {
		start, holder = v.place(job.Weight, v.now, false)
	}
	outcome := throttle.Granted
	if start > v.now+wait {
		outcome = throttle.Booked
	}
	r := v.answer(job, outcome, start, holder)
	// Rounded to what Throttle tells the script: the time left by the clock of
	// the caller, which in a test is the same clock.
	if !job.Deadline.IsZero() && start-v.now > max(0, job.Deadline.Sub(now).Microseconds()) {
		if taken {
			v.written()
			delete(m.records, job.ID)
		}
		return throttle.Reservation{}, &throttle.DeadlineError{Job: job.ID, Deadline: job.Deadline, Start: r.Start, Hold: r.Hold}
	}
	if outcome == throttle.Granted {
		v.spend(start, job.Weight)
	} else {
		v.book(start, job.Weight)
	}
	v.written()
	m.records[job.ID] = record{granted: outcome == throttle.Granted, start: start, weight: job.Weight, nonce: job.Nonce, holder: holder, names: v.names}
	return r, nil
}

// Peek says what Reserve would answer to a new job as peek.lua does.
func (m *Model) Peek(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	v := m.visit(now, job.Keys)
	start, holder := v.place(job.Weight, v.now, false)
	outcome := throttle.Granted
	if start > v.now+job.MaxWait.Microseconds() {
		outcome = throttle.Booked
	}
	return v.answer(job, outcome, start, holder), nil
}

// Cancel gives a reservation back as cancel.lua does.
func (m *Model) Cancel(now time.Time, job throttle.Job) (bool, error) {
	return m.giveBack(now, job, false)
}

// Release keeps a grant as a booking as cancel.lua does.
func (m *Model) Release(now time.Time, job throttle.Job) (bool, error) {
	return m.giveBack(now, job, true)
}

func (m *Model) giveBack(now time.Time, job throttle.Job, keep bool) (bool, error) {
	v := m.visit(now, job.Keys)
	known, found := v.record(job.ID)
	switch {
	case !found, known.granted && (known.nonce != job.Nonce || known.start <= v.now):
		return false, nil
	case !known.granted && keep:
		return true, nil
	case known.granted:
		v.unspend(known.start, known.weight)
	default:
		v.unbook(known.start, known.weight)
	}
	v.written()
	delete(m.records, job.ID)
	if keep {
		v.book(known.start, known.weight)
		known.granted, known.holder = false, 0
		m.records[job.ID] = known
	}
	return true, nil
}

// Usage tells what a scope key has used and promised as usage.lua does.
func (m *Model) Usage(now time.Time, scope, key string) (throttle.Usage, error) {
	i := slices.IndexFunc(m.scopes, func(s throttle.Scope) bool { return s.Name == scope })
	v := m.visitOne(now, m.scopes[i], key)
	usage := throttle.Usage{Scope: scope, Key: key, Now: time.UnixMicro(v.now)}
	ledgers := v.ledgers
	for _, limit := range m.scopes[i].Limits {
		if limit.Units == throttle.Unlimited {
			usage.Limits = append(usage.Limits, throttle.LimitUsage{Limit: limit, Free: usage.Now})
			continue
		}
		l := ledgers[0]
		ledgers = ledgers[1:]
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
	i := slices.IndexFunc(m.scopes, func(s throttle.Scope) bool { return s.Name == scope })
	v := m.visitOne(now, m.scopes[i], key)
	var finest *ledger
	for _, l := range v.ledgers {
		if l.window >= from.Microseconds() && (finest == nil || l.precision < finest.precision) {
			finest = l
		}
	}
	var units int64
	for at, spent := range finest.spent {
		if at > finest.edge(v.now) && at < v.now-to.Microseconds() && at+finest.precision > v.now-from.Microseconds() {
			units += spent
		}
	}
	return units, nil
}

func (m *Model) visitOne(now time.Time, scope throttle.Scope, key string) *visit {
	alone := *m
	alone.scopes = []throttle.Scope{scope}
	return alone.visit(now, map[string]string{scope.Name: key})
}
