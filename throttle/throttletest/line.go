package throttletest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// What the scripts keep to themselves about the line: when a booking is overdue,
// how long what a sweep found is left alone, when a booking is forgotten, and how
// many jobs one pull books.
const (
	overdueAfter = 500 * time.Millisecond
	leftAlone    = time.Second
	forgetAfter  = 10 * time.Minute
	mostPulled   = 32
	closedAtMost = 10 * time.Second // nobody is pulled
	asideAtMost  = 300 * time.Second
)

// line is what waits.
type line struct {
	lanes  map[throttle.Lane]*lane
	heads  map[string]map[throttle.Lane]int64 // the eligible lanes of a fair key, by their heads' arrivals
	ready  map[string]float64                 // start tags of the fair keys that have one
	tags   map[string]float64                 // where a fair key's last work ended
	since  map[throttle.Lane]bool             // what is or was held, as the hash's '~' tells
	time   float64                            // virtual
	agenda map[string]int64                   // what is due when, as in Redis: "/" lane, "=" job, "&" holder, "*"
	held   map[string]map[throttle.Lane]place // by scope:key
}

type lane struct {
	name    throttle.Lane
	keys    map[string]string
	waiting []waiter
}

type waiter struct {
	id              string
	weight, arrival int64
}

// member is what Redis orders those by that arrived at once.
func (w waiter) member() string { return fmt.Sprintf("%d:%s", w.weight, w.id) }

func newLine() *line {
	return &line{
		lanes: make(map[throttle.Lane]*lane), heads: make(map[string]map[throttle.Lane]int64),
		ready: make(map[string]float64), tags: make(map[string]float64), agenda: make(map[string]int64),
		held: make(map[string]map[throttle.Lane]place), since: make(map[throttle.Lane]bool),
	}
}

// laneOf names a lane. Its keys must not need encoding.
func (m *Model) laneOf(keys map[string]string) throttle.Lane {
	var others []string
	own := make(map[string]string)
	for _, scope := range m.scopes {
		key, has := keys[scope.Name]
		if scope.Name == throttle.Global || !has {
			continue
		}
		own[scope.Name] = key
		if scope.Name != m.options.FairScope {
			others = append(others, scope.Name+"="+key)
		}
	}
	slices.Sort(others)
	name := throttle.Lane(own[m.options.FairScope] + "|" + strings.Join(others, ","))
	if m.line.lanes[name] == nil {
		m.line.lanes[name] = &lane{name: name, keys: own}
	}
	return name
}

func fairOf(name throttle.Lane) string {
	fair, _, _ := strings.Cut(string(name), "|")
	return fair
}

func (l *line) lane(name throttle.Lane) *lane { return l.lanes[name] }

func (l *lane) index(job throttle.Job) int {
	return slices.IndexFunc(l.waiting, func(w waiter) bool { return w.id == job.ID && w.weight == job.Weight })
}

// tail is the arrival of a job that joins now: behind all others.
func (l *lane) tail(now int64) int64 {
	if n := len(l.waiting); n > 0 {
		return max(now, l.waiting[n-1].arrival+1)
	}
	return now
}

func (l *lane) units() int64 {
	var units int64
	for _, w := range l.waiting {
		units += w.weight
	}
	return units
}

// of sums jobs and units of all lanes of a fair key.
func (l *line) of(fair string) (jobs, units int64) {
	for name, lane := range l.lanes {
		if fairOf(name) == fair {
			jobs, units = jobs+int64(len(lane.waiting)), units+lane.units()
		}
	}
	return jobs, units
}

func (l *line) join(lane *lane, w waiter) {
	lane.waiting = append(lane.waiting, w)
	slices.SortFunc(lane.waiting, func(a, b waiter) int {
		return cmp.Or(cmp.Compare(a.arrival, b.arrival), cmp.Compare(a.member(), b.member()))
	})
	l.enlist(lane)
}

// leave takes a job out of its lane; the next pull clears away what is left.
func (l *line) leave(lane *lane, job throttle.Job) {
	i := lane.index(job)
	lane.waiting = slices.Delete(lane.waiting, i, i+1)
	if len(lane.waiting) == 0 && l.since[lane.name] {
		l.agenda["/"+string(lane.name)] = 0
	}
	fair := fairOf(lane.name)
	if jobs, _ := l.of(fair); jobs == 0 {
		delete(l.heads, fair)
		delete(l.ready, fair)
	}
}

// enlist makes a lane eligible, unless it is set aside.
func (l *line) enlist(lane *lane) {
	if _, aside := l.agenda["/"+string(lane.name)]; aside {
		return
	}
	fair := fairOf(lane.name)
	if l.heads[fair] == nil {
		l.heads[fair] = make(map[throttle.Lane]int64)
	}
	l.heads[fair][lane.name] = lane.waiting[0].arrival
	l.elect(fair)
}

// elect makes a fair key ready if it has an eligible lane.
func (l *line) elect(fair string) {
	_, is := l.ready[fair]
	switch {
	case len(l.heads[fair]) == 0:
		delete(l.ready, fair)
	case !is:
		l.ready[fair] = max(l.time, l.tags[fair])
	}
}

// eligible are a fair key's eligible lanes, the one with the oldest head first.
func (l *line) eligible(fair string) []throttle.Lane {
	heads := l.heads[fair]
	return slices.SortedFunc(maps.Keys(heads), func(a, b throttle.Lane) int {
		return cmp.Or(cmp.Compare(heads[a], heads[b]), cmp.Compare(a, b))
	})
}

// turns are the fair keys that are ready, the one whose turn it is first.
func (l *line) turns() []string {
	return slices.SortedFunc(maps.Keys(l.ready), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.ready[a], l.ready[b]), cmp.Compare(a, b))
	})
}

// next is the lane to be pulled now.
func (l *line) next(now int64) throttle.Lane {
	if l.closed(now) || len(l.ready) == 0 {
		return ""
	}
	return l.eligible(l.turns()[0])[0]
}

// closed tells that nobody is pulled.
func (l *line) closed(now int64) bool {
	again := l.agenda["*"]
	return again > now && again <= now+closedAtMost.Microseconds()
}

// Pull books the head of a lane as pull.lua does.
func (m *Model) Pull(now time.Time, name throttle.Lane) ([]throttle.Reservation, throttle.Lane, error) {
	booked, next := m.pull(now, name, mostPulled, false)
	return booked, next, nil
}

func (m *Model) pull(instant time.Time, name throttle.Lane, most int, recall bool) ([]throttle.Reservation, throttle.Lane) {
	l, fair := m.line, fairOf(name)
	lane := l.lane(name)
	v := m.visit(instant, lane.keys)
	until, aside := l.agenda["/"+string(name)]
	if aside && (recall || until <= v.now) {
		delete(l.agenda, "/"+string(name))
		aside = false
	}
	switch {
	case len(lane.waiting) == 0:
		l.clear(lane)
	case !aside:
		l.enlist(lane)
	}
	l.elect(fair)
	var booked []throttle.Reservation
	var letIn throttle.Lane
	switch {
	case len(lane.waiting) == 0:
		letIn = v.afterTurn(lane, false, 0, "")
	case !aside && l.next(v.now) == name:
		booked, letIn = v.pullInTurn(lane, most)
	}
	next := l.next(v.now)
	if next == "" && !l.closed(v.now) {
		next = letIn
	}
	return booked, next
}

// pullInTurn books jobs while it is the turn of their lane. It names the first of the
// lanes that were let in because of that.
func (v *visit) pullInTurn(lane *lane, most int) (pulled []throttle.Reservation, letIn throttle.Lane) {
	l, fair := v.model.line, fairOf(lane.name)
	turns, lanes := l.turns(), l.eligible(fair)
	contender, contended := v.contender(lane.name)
	holder := "" // of the lane, in the end
	class, work, before := byte(0), int64(0), l.time
	for n := 0; n < most && len(lane.waiting) > 0; n++ {
		w := lane.waiting[0]
		if n > 0 && contended != "" && l.ready[fair] >= contender {
			holder = contended
			break
		}
		if n > 0 && (len(turns) > 1 && l.ready[fair] >= l.ready[turns[1]] || len(lanes) > 1 && w.arrival >= l.heads[fair][lanes[1]]) {
			break
		}
		if job := (throttle.Job{ID: w.id, Weight: w.weight, Lane: lane.name}); v.tooHeavy(w.weight) {
			// It is told so when it comes.
			pulled = append(pulled, throttle.Reservation{Job: job, Outcome: throttle.Booked, Now: time.UnixMicro(v.now), Start: time.UnixMicro(v.now)})
		} else if _, twice := v.model.bookings[w.id]; !twice {
			start, by, near, again := v.near(w.weight)
			if !near {
				class, holder = v.setAside(lane, w.weight, start, by, again, work > 0)
				break
			}
			v.promiseNext(lane, start, by)
			work += w.weight
			pulled = append(pulled, throttle.Reservation{Job: job, Outcome: throttle.Booked, Now: time.UnixMicro(v.now), Start: time.UnixMicro(start)})
		}
		lane.waiting = lane.waiting[1:]
	}
	if work > 0 {
		v.written()
		l.goOn(before, work, len(lane.waiting) > 0, fair, contender, contended != "")
	}
	switch {
	case len(lane.waiting) == 0:
		l.clear(lane)
	case class == 0 && holder == "":
		l.heads[fair][lane.name] = lane.waiting[0].arrival
	case class == 0:
		l.hold(holder, lane, place{l.ready[fair], lane.waiting[0].arrival}, v.now)
		l.agenda["&"+holder] = soonest(l.agenda, "&"+holder, v.now)
	case class == shared:
		l.heads[fair][lane.name] = lane.waiting[0].arrival
	}
	letIn = v.afterTurn(lane, work > 0, class, holder)
	l.elect(fair)
	if class == own {
		delete(l.ready, fair)
	}
	return pulled, letIn
}

// tooHeavy tells that a limit was lowered below a weight.
func (v *visit) tooHeavy(weight int64) bool {
	return slices.ContainsFunc(v.rulings, func(r ruling) bool { return !r.free() && r.limit.Units > 0 && weight > r.limit.Units })
}

// promiseNext books the head of a lane and moves the tags.
func (v *visit) promiseNext(lane *lane, start int64, holder int) {
	l, fair, w := v.model.line, fairOf(lane.name), lane.waiting[0]
	v.book(start, w.weight)
	v.model.promise(w.id, booking{slot: start, weight: w.weight, arrival: w.arrival, holder: holder, keys: v.names.keys, lane: lane.name})
	l.time = l.ready[fair]
	tag := l.ready[fair]
	l.ready[fair] = max(tag+float64(w.weight)/v.model.share(fair), tag*1.0000000000000002)
	l.tags[fair] = l.ready[fair]
}

// goOn moves the virtual time on by what each of those who are ready, and one who comes,
// would have got of this work, never beyond a job ahead of the last of them, nor ahead of
// who goes on waiting.
func (l *line) goOn(before float64, work int64, waits bool, fair string, contender float64, contended bool) {
	most := slices.Max(slices.Collect(maps.Values(l.ready))) + float64(work)
	if waits {
		most = min(most, l.ready[fair])
	}
	if contended {
		most = min(most, contender)
	}
	l.time = max(l.time, min(before+float64(work)/float64(len(l.ready)+1), most))
}

// share is that of a fair key.
func (m *Model) share(fair string) float64 { return float64(max(1, m.options.Shares[fair])) }

// refund takes back what a fair key's tag was moved by for work that is not to be; less
// than none moves it on, unless it is past.
func (l *line) refund(fair string, work float64) {
	moved := func(tag float64) float64 {
		if work < 0 {
			return tag - work
		}
		return min(tag, max(l.time-3*work, tag)-work)
	}
	if tag, ready := l.ready[fair]; ready {
		l.ready[fair] = moved(tag)
	}
	if tag, known := l.tags[fair]; known && (work > 0 || tag >= l.time) {
		l.tags[fair] = moved(tag)
	}
}

// clear takes away an empty lane.
func (l *line) clear(lane *lane) {
	fair := fairOf(lane.name)
	delete(l.agenda, "/"+string(lane.name))
	delete(l.heads[fair], lane.name)
	if jobs, _ := l.of(fair); jobs == 0 {
		delete(l.heads, fair)
	}
}

// near is a job's place, and whether it is near enough to be booked: within the
// lookahead, or a window behind it for a heavy job that lighter ones would else be
// in the way of. If not, again is when that may change.
func (v *visit) near(weight int64) (start int64, holder int, near bool, again int64) {
	lookahead := v.model.options.Lookahead.Microseconds()
	start, holder = v.place(weight, v.now, false)
	if start <= v.now+lookahead {
		return start, holder, true, 0
	}
	span := int64(0)
	if holder > 0 && holder <= len(v.ledgers) {
		span = v.ledgers[holder-1].span
	}
	if light, _ := v.place(1, v.now, false); light > v.now+lookahead {
		return start, holder, false, light - lookahead
	}
	return start, holder, start <= v.now+lookahead+span, start - lookahead - span
}

// Which jobs a limit holds back together.
const (
	shared = 'g'
	own    = 'f'
	other  = 'o'
)

// setAside leaves a lane alone until its head may be placed within the lookahead,
// or what is only promised may have turned out not to be used; if the limit is
// one that all share, it leaves all alone.
func (v *visit) setAside(lane *lane, weight, start int64, by int, again int64, served bool) (class byte, holder string) {
	l, fair := v.model.line, fairOf(lane.name)
	class, holder = v.class(by)
	if class == shared {
		l.agenda["*"] = v.lookAgain(again, weight, start, closedAtMost)
		return class, ""
	}
	again = v.lookAgain(again, weight, start, asideAtMost)
	if light, _ := v.place(1, v.now, false); holder == "" || light <= v.now+v.model.options.Lookahead.Microseconds() {
		l.agenda["/"+string(lane.name)] = again
		delete(l.heads[fair], lane.name)
		return class, ""
	}
	tag := l.ready[fair]
	if before, is := l.held[holder][lane.name]; is && !served {
		tag = min(tag, before.tag)
	}
	l.hold(holder, lane, place{tag, lane.waiting[0].arrival}, v.now)
	l.agenda["&"+holder] = again
	return class, holder
}

// class tells which jobs what holds one back holds back together, and if others share
// it which scope key it is.
func (v *visit) class(by int) (class byte, holder string) {
	hold := v.hold(by)
	switch {
	case hold == nil:
		return other, ""
	case hold.Scope == throttle.Global:
		return shared, ""
	case hold.Scope == v.model.options.FairScope:
		return own, ""
	}
	return other, hold.Scope + ":" + hold.Key
}

// lookAgain is when to look again, as what is only promised may not come.
func (v *visit) lookAgain(again, weight, start int64, most time.Duration) int64 {
	if spent, _ := v.place(weight, v.now, true); spent < start {
		again = min(again, max(v.now+min(v.model.grace, time.Second).Microseconds(), spent-v.model.options.Lookahead.Microseconds()))
	}
	return min(again, v.now+most.Microseconds())
}

// Lines tells all lines in one page, in order of their keys. The model guesses no
// end.
func (m *Model) Lines(now time.Time, _ string) (throttle.LinesPage, error) {
	page := throttle.LinesPage{Now: now}
	fairs := make(map[string]bool)
	for name := range m.line.lanes {
		fairs[fairOf(name)] = true
	}
	for _, fair := range slices.Sorted(maps.Keys(fairs)) {
		line := throttle.Line{Key: fair, Share: int64(max(1, m.options.Shares[fair]))}
		if line.Jobs, line.Units = m.line.of(fair); line.Jobs == 0 {
			continue
		}
		for _, b := range m.bookings {
			if fairOf(b.lane) == fair {
				line.Booked += b.weight
			}
		}
		page.Lines = append(page.Lines, line)
	}
	return page, nil
}

// ahead are the units before a job in its lane, as far as they are counted: for
// one that stands in it already at the mean weight.
func (l *lane) ahead(job throttle.Job, front bool) int64 {
	if i := l.index(job); i >= 0 {
		before := 0
		for _, w := range l.waiting {
			if w.arrival < l.waiting[i].arrival {
				before++
			}
		}
		return int64(math.Floor(float64(before) * float64(l.units()) / float64(len(l.waiting))))
	}
	if front {
		return 0
	}
	return l.units()
}
