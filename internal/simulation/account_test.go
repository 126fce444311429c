package simulation_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/lua"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// account records what Redis did, in the order in which Redis did it: grants, settlements
// and refunds, and the settings at the time. It reads the replies before a wire can lose
// them, so it has a grant whose reply is lost on the way. What no reply has, it asks Redis
// itself (see the package's documentation). It checks as it grows: each start against the
// limits in force at that moment, and each usage that Redis reports against the grants.
type account struct {
	world *world

	set      map[string]string       // set at run time: limits by scope key or scope, modes by ~ and the scope
	since    map[string]map[span]int // by scope key and window: how many grants came before the window was in force
	inexact  map[string]bool         // scope keys of which Redis may count more than the account
	askings  map[string]int64        // the last asking of each asker
	charges  map[string][]*charge    // the charges, by job and start
	byKey    map[string][]entry      // the entries, by scope key
	seen     map[string]int64        // by scope key: its ledgers' time at the last charge
	standing map[string]bool         // flows in line after the last script; only in even worlds
	passed   map[string]bool         // flows with a claim, or whose tag the virtual time has passed
	parts    map[string]int64        // by scope key: thousandths of its limits that are served

	// By scope key, by Redis' clock: the last report that changed its served share, and the last that did or refused.
	adaptedAt map[string][2]int64

	reports int
	lowered int
	quiet   bool // every booking has stopped counting
	grants  int
	granted time.Time // when the last job was granted, by the local clock
	usages  int
	pulls   []pulled
	lines   map[string]map[string]int64 // the weights of the jobs in line, by flow
	slots   map[string]string           // the slots of the booked jobs
	lost    map[string]bool             // jobs that have lost a slot, and are pulled for nothing once
	told    map[string]map[span]int64   // by scope key and quota: the used and booked units of the last usage
	wall    *wall
	starts  int               // how many starts were compared with quotas and hours
	edges   int               // the most that Redis had of one calendar
	ramps   int               // usages of ramps, whose units in force were compared
	texts   map[string]string // the texts of ramps, by their steps and calendars

	advances  map[*wire][]*advance // by the process that has them
	paused    map[string]int64     // by scope key: until when it is closed at run time
	disturbed map[string]int       // by scope key: how many grants came before limits or modes changed, or charges grew
	advanced  struct{ charged, started, checked int }
}

// charge is a grant and what it counts for.
type charge struct {
	job          string
	n            int      // its number among the grants
	at           int64    // its start in µs, on Redis' clock
	names        []string // its scope keys
	costs, units []int64  // by scope key: the costs that were asked for, and the units that count
	charged      []bool   // by scope key: its scope was not off
	settled      bool
	gone         bool          // the grant was given back, and is a booking again
	answered     time.Time     // when the answer came, by the local clock
	delay        time.Duration // from the answer to the start
	run          bool          // a handler has run under it
	places       []*place      // the places that it has under running limits
	ended        bool          // its process said that it has ended, or its places are lost
	advanced     bool          // it started out of an advance
	taken        int64         // for an advance, the units that jobs have taken
}

// entry is a charge as a scope key's ledgers have it.
type entry struct {
	*charge
	of int   // the index of the scope key among the charge's
	at int64 // the start in the time of the ledgers
}

// counts returns the units for which the entry counts now.
func (e entry) counts() int64 { return e.units[e.of] }

// pulled is one job that was pulled from a line, for the shares.
type pulled struct {
	flow   string
	weight int64
	ready  []string // the flows that stood in line before and after the pull, under the limit that all share
}

func newAccount(w *world) *account {
	a := &account{
		world: w, set: map[string]string{}, since: map[string]map[span]int{}, inexact: map[string]bool{},
		askings: map[string]int64{},
		charges: map[string][]*charge{}, passed: map[string]bool{}, byKey: map[string][]entry{},
		seen: map[string]int64{}, lines: map[string]map[string]int64{}, slots: map[string]string{}, parts: map[string]int64{},
		lost: map[string]bool{},
		wall: newWall(), texts: w.plan.rampTexts(), told: map[string]map[span]int64{}, adaptedAt: map[string][2]int64{},
		advances: map[*wire][]*advance{}, paused: map[string]int64{}, disturbed: map[string]int{},
	}
	a.renew()
	return a
}

// verbs are the scripts whose replies the account reads, by their hash.
var verbs = map[string]string{
	redis.NewScript(lua.Reserve).Hash(): "reserve",
	redis.NewScript(lua.Pull).Hash():    "pull",
	redis.NewScript(lua.Leave).Hash():   "leave",
	redis.NewScript(lua.Settle).Hash():  "settle",
	redis.NewScript(lua.Running).Hash(): "running",
	redis.NewScript(lua.Usage).Hash():   "usage",
	redis.NewScript(lua.Set).Hash():     "set",
	redis.NewScript(lua.Report).Hash():  "report",
}

// saw takes up one command of a process and its reply. The caller holds the exchange's lock.
func (a *account) saw(wire *wire, args []string, reply []byte) {
	if !ofThrottle(args) {
		return
	}
	values := decode(reply)
	if values == nil {
		if text := string(reply); !strings.Contains(text, "NOSCRIPT") && !strings.Contains(text, "EDGES ") {
			a.world.errorf("script %s refused: %.200s", verbs[args[1]], text)
		}
		return
	}
	n, _ := strconv.Atoi(args[2])
	argv := args[3+n:]
	if a.world.plan.kind == even {
		defer a.stand(len(a.pulls))
	}
	if a.world.plan.bounded && a.world.plan.kind == calm {
		defer a.checkBounds()
	}
	switch verbs[args[1]] {
	case "reserve":
		a.reserved(wire, argv, text(values[0]))
	case "pull":
		_, ended := grantsOf(argv)
		a.signs(false, ended, append(values[:2:2], values[5:]...))
		a.pulled(argv, values)
	case "running":
		renews, grants := grantsOf(argv)
		a.signs(renews, grants, values)
	case "leave":
		for i, left := range values[2:] {
			if number(text(left)) == 1 {
				delete(a.lost, argv[3+i])
				a.leaves(argv[3+i])
			}
		}
	case "settle":
		a.settled(argv, values)
	case "usage":
		a.usage(argv, values)
	case "set":
		a.changed(argv[3], argv[4], argv[5], number(text(values[3])))
	case "report":
		a.adapted(argv, values)
	}
}

// notePassed notes the flows whose jobs have claims, and the flows whose tags the virtual time has passed.
func (a *account) notePassed() {
	prefix := "thr:{" + a.world.name + "}:4:"
	claims, err := a.world.redis.do(encode("HVALS", prefix+"claims"))
	virtual, failed := a.world.redis.do(encode("HGET", prefix+"tags:"+throttle.Global+":", "*"))
	least := "-inf"
	if values := decode(virtual); len(values) == 1 {
		least = "(" + cmp.Or(text(values[0]), "0")
	}
	behind, wrong := a.world.redis.do(
		encode("ZRANGEBYSCORE", prefix+"wait:"+throttle.Global+":", "-inf", least))
	if err = errors.Join(err, failed, wrong); err != nil {
		a.world.errorf("who has claims or was passed: %v", err)
	}
	for _, claim := range decode(claims) {
		_, id, _ := strings.Cut(text(claim), " ")
		for _, j := range a.world.plan.jobs {
			if strings.Contains(id, j.id) {
				a.passed[j.tenant] = true
			}
		}
	}
	for _, flow := range decode(behind) {
		a.passed[text(flow)] = true
	}
}

// stand notes, after a script, which flows stand in line under the limit that all share, and
// stood there before the script too: shares bind only these flows. No reply tells this, nor
// that a heavy job has a claim or was passed, so the account asks Redis.
func (a *account) stand(from int) {
	reply, err := a.world.redis.do(encode("ZRANGE", "thr:{"+a.world.name+"}:4:wait:"+throttle.Global+":", "0", "-1"))
	now := map[string]bool{}
	for _, flow := range decode(reply) {
		now[text(flow)] = true
	}
	if err != nil {
		a.world.errorf("who stands: %v", err)
	}
	a.notePassed()
	var both []string
	for flow := range now {
		if a.standing[flow] {
			both = append(both, flow)
		}
	}
	a.standing = now
	a.pulls = append(a.pulls, pulled{}) // a change of the standing flows counts even if no job was pulled
	for i := from; i < len(a.pulls); i++ {
		a.pulls[i].ready = both
	}
}

// text returns a value of a reply as text, even if it is an integer.
func text(v any) string {
	if n, is := v.(int64); is {
		return strconv.FormatInt(n, 10)
	}
	s, _ := v.(string)
	return s
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// flowAndKeys reads a lane.
func flowAndKeys(lane string) (flow string, names []string) {
	flow, all, _ := strings.Cut(lane, "|")
	flow, _, _ = strings.Cut(flow, "#")
	return flow, strings.FieldsFunc(all, func(r rune) bool { return r == ',' })
}

// leaves takes a job out of its line, or takes its booking away.
func (a *account) leaves(id string) {
	delete(a.slots, id)
	for _, line := range a.lines {
		delete(line, id)
	}
}

// reserved takes up an answer for each job. A repeated reply says nothing new, nor does a
// reply for no jobs.
func (a *account) reserved(wire *wire, argv []string, reply string) {
	asker, asking := argv[3], number(argv[4])
	if asking == 0 || asking == a.askings[asker] {
		return
	}
	a.askings[asker] = asking
	if len(argv) == 5 {
		return
	}
	lines := strings.Split(reply, "\n")
	head, _, _ := strings.Cut(lines[0], " ")
	for i, line := range lines[1:] {
		job := argv[5+3*i:]
		costs, _, _ := strings.Cut(job[2], " ")
		id := job[0]
		flow, names := flowAndKeys(job[1])
		units := unitsOf(costs, names)
		words := strings.Split(line, " ")
		slot, booked := a.slots[id]
		if booked && (words[0] == "3" || words[0] == "2" && words[1] != slot) {
			a.lost[id] = !a.lost[id] // if it has lost the free slot too, its flow pays again
		}
		a.leaves(id)
		switch words[0] {
		case "0":
			a.world.errorf("%s is not decided: %s", id, line)
		case "1":
			delete(a.lost, id)
			now, at := number(head), number(words[1])
			granted := &charge{
				job: id, at: at, costs: units, units: slices.Clone(units), names: names,
				answered: time.Now(), delay: time.Duration(at-now) * time.Microsecond,
			}
			a.grant(granted, now)
			if units, ends := advanceIn(words); units > 0 {
				a.charged(wire, job[1], granted, now, units, ends)
			}
		case "2":
			a.slots[id] = words[1]
		case "3":
			if a.lines[flow] == nil {
				a.lines[flow] = map[string]int64{}
			}
			a.lines[flow][id] = sharedUnits(names, units)
		}
	}
}

// chargeName returns the key under which charges are found. No job starts twice at one instant, except a job whose
// first grant was lost.
func chargeName(id string, at int64) string { return id + " " + strconv.FormatInt(at, 10) }

// unused returns the charge under which a job starts, nil if there is none. Of several charges it is the first under
// which no handler has run yet, or else the last.
func (a *account) unused(id string, at int64) (found *charge) {
	for _, c := range a.charges[chargeName(id, at)] {
		if found == nil || found.run {
			found = c
		}
	}
	return found
}

// grant enters the charge of a job into the account.
func (a *account) grant(c *charge, now int64) {
	name := chargeName(c.job, c.at)
	a.charges[name] = append(a.charges[name], c)
	a.count(c, now)
}

// count enters a charge under its scope keys, and checks that no window that contains its start is over a limit in
// force now.
func (a *account) count(c *charge, now int64) {
	a.grants++
	c.n, a.granted = a.grants, time.Now()
	for i, name := range c.names {
		scope, _ := a.scopeOf(name)
		mode := a.modeOf(scope.Name)
		c.charged = append(c.charged, mode != throttle.Off)
		if mode == throttle.Off {
			continue
		}
		a.occupy(c, i, mode)
		ledgers := a.timeOf(name)
		a.seen[name] = a.look(name, ledgers.of(now, now))
		e := entry{charge: c, of: i, at: ledgers.of(c.at, now)}
		a.byKey[name] = append(a.byKey[name], e)
		if mode == throttle.Shadow {
			continue
		}
		a.checkOpen(name, c)
		for _, l := range a.limitsOf(name) {
			units := a.wall.unitsAt(l, e.at)
			if held := a.held(name, e, l); held > units || held > a.mostOf(name, units, c.costs[i]) {
				a.world.errorf("window over its limit: %s holds %d units of %+v, of which %d thousandths of %d are served, "+
					"with %s, granted for %d", name, held, l, a.parts[name], units, c.job, c.at)
			}
		}
	}
}

// ledgerTime is the time of a scope key's ledgers.
type ledgerTime struct{ offset, seen int64 }

// of returns the ledgers' time of an instant. After a step back of Redis' clock, the time now stands
// still until the clock has caught up; an instant beyond it has its own time.
func (l ledgerTime) of(instant, now int64) int64 {
	if now+l.offset < l.seen {
		return max(instant+l.offset, l.seen)
	}
	return instant + l.offset
}

// timeOf reads the offset of a scope key's ledgers, and when Redis last looked at them.
func (a *account) timeOf(name string) ledgerTime {
	if !a.world.plan.stepsBack() {
		return ledgerTime{}
	}
	reply, err := a.world.redis.do(encode("GETRANGE", "thr:{"+a.world.name+"}:4:key:"+name, "0", "100"))
	values := decode(reply)
	if err != nil || values == nil {
		a.world.errorf("reading scope key %s: %q %v", name, reply, err)
		return ledgerTime{}
	}
	words := strings.SplitN(text(values[0]), " ", 4)
	if len(words) < 4 {
		return ledgerTime{} // Redis does not have the scope key
	}
	return ledgerTime{offset: number(words[2]), seen: number(words[1])}
}

// timeIn returns the time of a scope key's ledgers at a call of usage. Ledgers in which nothing counts any more follow
// the clock again, though Redis' text of the scope key may still have their old time. Only the script can tell, so the
// account makes the same call for this scope key.
func (a *account) timeIn(argv []string, name string, now int64) int64 {
	t := a.timeOf(name).of(now, now)
	if t == now {
		return t
	}
	all, control := redis.NewScript(lua.Usage).Hash(), "thr:{"+a.world.name+"}:4:control"
	reply, err := a.world.redis.do(encode("EVALSHA", all, "1", control, argv[0], argv[1], argv[2], "e", name))
	values := decode(reply)
	if err != nil || len(values) != 2 {
		a.world.errorf("reading the time of scope key %s: %q %v", name, reply, err)
		return t
	}
	for line := range strings.SplitSeq(text(values[1]), "\n") {
		if ledger, is := strings.CutPrefix(line, "= "); is { // span, precision, n, shift
			return now + number(strings.Fields(ledger)[3])
		}
	}
	return now
}

// look forgets the entries of a scope key if its ledgers' time, t, is before that of the last charge:
// then nothing counted any more, and the ledgers began anew. It returns t.
func (a *account) look(name string, t int64) int64 {
	if t < a.seen[name] {
		a.byKey[name] = nil
	}
	return t
}

// stepsBack prepares the account; call it before Redis' clock is set back. An entry that has left all windows and
// periods by now is gone if Redis has looked at its scope key since. Otherwise the entry counts on, since the ledgers'
// time stands still at the last look.
func (a *account) stepsBack() {
	now := a.world.now().UnixMicro()
	for name, entries := range a.byKey {
		limits, t := a.limitsOf(name), a.timeOf(name).of(now, now)
		a.byKey[name] = slices.DeleteFunc(entries, func(e entry) bool {
			counts := func(l limit) bool { return e.n > a.since[name][l.span] && !a.hasLeft(l, e.at, t) }
			return e.at < t && !slices.ContainsFunc(limits, counts)
		})
		a.inexact[name] = a.inexact[name] || len(a.byKey[name]) < len(entries)
	}
}

// hasLeft reports whether a start no longer counts under a limit. Both instants are in the ledgers' time.
func (a *account) hasLeft(l limit, at, now int64) bool {
	if l.kind == quota {
		return a.wall.beganAt(l.calendar, at) < a.wall.beganAt(l.calendar, now)
	}
	return at+l.length < now
}

// held returns how many units the period or the fullest window that contains a charge holds.
func (a *account) held(name string, e entry, l limit) int64 {
	if l.kind == quota {
		return a.inPeriod(name, e, l)
	}
	return a.fullest(name, e, l)
}

// fullest returns how many units the fullest window that contains a charge holds, out of the units that were charged
// while the window was in force.
func (a *account) fullest(name string, e entry, l limit) int64 {
	var most int64
	since, window := a.since[name][l.span], l.length
	for _, end := range a.byKey[name] {
		if end.at < e.at || end.at >= e.at+window {
			continue
		}
		var units int64
		for _, other := range a.byKey[name] {
			if other.at > end.at-window && other.at <= end.at && other.n > since {
				units += other.counts()
			}
		}
		most = max(most, units)
	}
	return most
}

// scopeOf returns the scope in the name of a scope key, and the key.
func (a *account) scopeOf(name string) (throttle.Scope, string) {
	of, key, _ := strings.Cut(name, ":")
	for _, scope := range a.world.plan.scopes {
		if scope.Name == of {
			return scope, key
		}
	}
	a.world.errorf("there is no scope of %s", name)
	return throttle.Scope{}, key
}

func (a *account) modeOf(scope string) throttle.Mode {
	letter, is := a.set["~"+scope]
	if !is {
		letter = a.set["~"]
	}
	if letter == "" {
		return throttle.Enforce
	}
	return throttle.Mode(strings.Index("eso", letter))
}

// span is the window of a limit, or its lease, in microseconds; or the calendar of a quota, or the text of hours.
type span struct {
	kind     byte
	length   int64
	calendar string
}

// The kinds of limits, as the scripts write them.
const (
	window = 'w'
	lease  = 'r'
	quota  = 'z'
	hours  = 'h'
)

// limit is a limit as the scripts have it.
type limit struct {
	units int64 // for a ramp, the units of its last step
	span
	precision int64
	ramp      string // its text, empty for other limits
}

// limitsOf returns the limits of windows and periods that are in force for a scope key.
func (a *account) limitsOf(name string) []limit {
	return slices.DeleteFunc(a.inForce(name), func(l limit) bool { return !l.countsStarts() })
}

// inForce returns all limits that are in force for a scope key.
func (a *account) inForce(name string) (inForce []limit) {
	scope, _ := a.scopeOf(name)
	text, is := a.set[name]
	if !is {
		text, is = a.set[scope.Name]
	}
	if is {
		for one := range strings.SplitSeq(text, ",") {
			inForce = append(inForce, a.limitIn(one))
		}
		return inForce
	}
	for _, l := range scope.Limits {
		inForce = append(inForce, limitOf(l))
	}
	return inForce
}

// limitOf converts a limit of the configuration.
func limitOf(l throttle.Limit) limit {
	of := span{kind: window, length: l.Window.Microseconds()}
	switch {
	case l.Running:
		of = span{kind: lease, length: l.Lease.Microseconds()}
	case l.Hours != "":
		of = span{hours, l.Length().Microseconds(), l.Hours}
	case isQuota(l):
		of = span{quota, l.Length().Microseconds(), l.Calendar.String()}
	}
	return limit{units: l.Units, span: of, precision: l.Precision.Microseconds(), ramp: l.Ramp}
}

// limitIn reads "units/span/precision". A span is a letter, a length and the text of a calendar. A ramp has its steps
// in the place of the units.
func (a *account) limitIn(text string) limit {
	parts := strings.Split(text, "/")
	rest := strings.TrimLeft(parts[1][1:], "0123456789")
	length := number(strings.TrimSuffix(parts[1][1:], rest))
	calendar := strings.NewReplacer(".", "/", "~", " ", "&", ",").Replace(rest)
	l := limit{span: span{parts[1][0], length, calendar}, precision: number(parts[2])}
	steps, _, isRamp := strings.Cut(parts[0], ":")
	l.units = number(steps[strings.LastIndex(steps, "&")+1:])
	if isRamp {
		if l.ramp = a.texts[parts[0]+"@"+calendar]; l.ramp == "" {
			a.world.errorf("%s is no ramp of this world", text)
		}
	}
	return l
}

// countsStarts reports whether a limit counts the starts of a window or a period.
func (s span) countsStarts() bool { return s.kind == window || s.kind == quota }

// changed takes up a setting that was made at run time.
func (a *account) changed(what, name, value string, set int64) {
	switch what {
	case "pause", "resume":
		a.paused[name] = set
		return
	case "mode":
		name = "~" + name
		for of := range a.since {
			a.disturb(of)
		}
	case "limits":
		if value == "" {
			delete(a.parts, name) // the served share is 1 again
		}
		for _, scope := range a.world.plan.scopes {
			for _, key := range a.world.plan.keys(scope.Name) {
				if own := scope.Name + ":" + key; own == name || scope.Name == name {
					a.inexact[own] = true
					a.disturb(own)
				}
			}
		}
	default:
		return
	}
	if a.set[name] = value; value == "" {
		delete(a.set, name)
	}
	a.renew()
}

// renew notes which windows are in force from now on. A window that was not in force before counts
// from when it is first asked for.
func (a *account) renew() {
	for _, scope := range a.world.plan.scopes {
		for _, key := range a.world.plan.keys(scope.Name) {
			name := scope.Name + ":" + key
			were, are := a.since[name], map[span]int{}
			for _, l := range a.inForce(name) {
				since, was := were[l.span]
				if !was {
					since = a.grants
				}
				are[l.span] = since
			}
			a.since[name] = are
		}
	}
}

// pulled takes up the reply of a pull. After the values for jobs that have ended come the jobs
// that the pull booked, then the jobs that are overdue or never fit, which stand in no line.
func (a *account) pulled(argv []string, reply []any) {
	// A heavy job may claim a start beyond the known edges: the next pull knows them.
	if trouble := text(reply[3]); trouble != "" && !strings.HasPrefix(trouble, "EDGES ") {
		a.world.errorf("a pull went wrong: %s", trouble)
	}
	booked := int(number(text(reply[2])))
	for rest := reply[5+(len(argv)-4)/3:]; len(rest) > 0; rest, booked = rest[3:], booked-1 {
		id, slot := text(rest[0]), text(rest[1])
		flow, _ := flowAndKeys(text(rest[2]))
		weight, stood := a.lines[flow][id]
		_, known := a.slots[id] // a claim is moved forward
		a.leaves(id)
		if booked <= 0 {
			delete(a.lost, id)
			continue
		}
		a.slots[id] = slot
		switch {
		case stood && !a.lost[id]:
			a.pulls = append(a.pulls, pulled{flow: flow, weight: weight})
		case !stood && !known:
			a.world.errorf("%s was pulled from the line of %q, but did not stand in it", id, flow)
		}
	}
}

// settled takes up a correction.
func (a *account) settled(argv []string, reply []any) {
	if number(text(reply[2])) == 0 {
		return
	}
	numbers := strings.Split(argv[7], " ")
	id, at, rebook := argv[3], number(numbers[0]), numbers[4] == "1"
	charges := a.charges[chargeName(id, at)]
	i := slices.IndexFunc(charges, func(c *charge) bool { return !c.settled })
	if i < 0 {
		a.world.errorf("%s of %d was settled, but not granted, or twice: %v", id, at, charges)
		return
	}
	c := charges[i]
	c.settled, c.gone = true, rebook
	if rebook {
		a.slots[id] = strconv.FormatInt(at, 10)
	}
	for k, units := range unitsOf(argv[6], c.names) {
		if c.charged[k] && units != c.units[k] {
			a.correct(c.names[k], c, number(text(reply[0])))
			if units > c.units[k] {
				a.disturb(c.names[k])
			}
			c.units[k] = units
		}
	}
}

// correct checks whether the ledgers of a scope key certainly have the corrected entry. A charge that was made while
// time stood still has its entry at another instant than its start: after its correction the account no longer knows
// what the ledgers have.
func (a *account) correct(name string, c *charge, now int64) {
	if !a.world.plan.stepsBack() {
		return
	}
	t := a.timeOf(name)
	for _, e := range a.byKey[name] {
		switch {
		case e.charge != c:
		case t.of(now, now) != now: // no units are given back, and units beyond the charge count from now on
			a.inexact[name] = true
			return
		case e.at == c.at || c.advanced:
			return
		}
	}
	a.byKey[name], a.inexact[name] = nil, true
}

// usage compares the used units that Redis reports with the grants. Under an inexact scope key, Redis
// may report more: a window that was set at run time has its own precision, and a window that was in
// force before has earlier charges.
func (a *account) usage(argv []string, reply []any) {
	now := number(text(reply[0]))
	for i, name := range argv[4:] {
		a.usages++
		t := a.look(name, a.timeIn(argv, name, now))
		least, most := a.partsOf(name)
		if head := strings.Fields(text(reply[1+i])); len(head) > 1 && number(head[1]) != least && number(head[1]) != most {
			a.world.errorf("usage of %s: %s thousandths are served, the account says %d to %d", name, head[1], least, most)
		}
		for _, line := range strings.Split(text(reply[1+i]), "\n")[1:] {
			words := strings.Split(line, " ")
			if !strings.Contains(words[0], "/") {
				break // the lines of entries and counts follow
			}
			switch l := a.limitIn(words[0]); l.kind {
			case window:
				a.compare(name, l, t, number(words[1]), number(words[2]))
			case quota:
				a.compareQuota(name, l, t, number(words[1]), number(words[2]))
				a.compareInForce(name, l, t, number(words[5]))
			}
		}
	}
}

func (a *account) compare(name string, l limit, now, used, booked int64) {
	edge, precision := now-l.length, int64(1)
	if l.precision > 1 && !a.inexact[name] {
		precision = l.precision
		edge = now - now%precision - (l.length+precision-1)/precision*precision - precision
	}
	var units, later int64 // later: granted for a later start, and booked until then
	for _, e := range a.byKey[name] {
		switch at := e.at - e.at%precision; {
		case at <= edge || e.n <= a.since[name][l.span]:
		case at > now:
			later += e.counts()
		default:
			units += e.counts()
		}
	}
	a.compareUnits(name, l, used, units, booked, later)
}

func (a *account) compareUnits(name string, l limit, used, units, booked, later int64) {
	if a.quiet && booked > later {
		a.world.errorf("usage of %s, %+v: %d booked, and nobody waits", name, l, booked)
	}
	if used < units || used > units && !a.inexact[name] {
		a.world.errorf("usage of %s, %+v: %d used, the account says %d", name, l, used, units)
	}
}

func (c *charge) String() string {
	return fmt.Sprintf("%s at %d: %d of %d units of %s, settled %t, given back %t", c.job, c.at, c.units, c.costs, c.names,
		c.settled, c.gone)
}
