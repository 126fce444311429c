package simulation_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/lua"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// account is what Redis was seen to do, in the order in which it did it: what was
// granted, settled and given back, under which settings. It is kept by reading the
// replies alone, so that a grant whose reply is lost is in it too. It is checked as it
// grows: each start against the limits in force at that moment, each usage that Redis
// tells against what was granted.
type account struct {
	world *world

	set      map[string]string // the control hash, but for pauses
	touched  map[string]bool   // scopes whose limits were set at some time
	charges  map[string]*charge
	byKey    map[string][]*charge
	records  map[string]*charge // the latest of each job
	bookings map[string]booking
	quiet    bool // nothing can be promised any more
	grants   int
	usages   int
	pulls    []pulled
	lines    map[string]map[string]bool // the jobs in line, by fair key
}

// charge is a grant and what it counts for.
type charge struct {
	job, nonce, ledgers string
	at                  int64 // its start in µs, on Redis' clock
	weight, units       int64
	settled, gone       bool
	answered            time.Time     // by the local clock
	delay               time.Duration // from the answer to the start
	run                 bool          // a handler has run under it
}

// booking is a slot that a job was promised.
type booking struct {
	slot, weight int64
	keys         string
}

// pulled is one job that was pulled from a line, for the shares.
type pulled struct {
	fair   string
	weight int64
	ready  []string // the fair keys that had a line before
}

func newAccount(w *world) *account {
	return &account{
		world: w, set: map[string]string{}, touched: map[string]bool{}, charges: map[string]*charge{}, byKey: map[string][]*charge{},
		records: map[string]*charge{}, bookings: map[string]booking{}, lines: map[string]map[string]bool{},
	}
}

// verbs are the scripts that the account is kept by, by their hash.
var verbs = map[string]string{
	redis.NewScript(lua.Reserve).Hash(): "reserve",
	redis.NewScript(lua.Pull).Hash():    "pull",
	redis.NewScript(lua.Cancel).Hash():  "cancel",
	redis.NewScript(lua.Settle).Hash():  "settle",
	redis.NewScript(lua.Usage).Hash():   "usage",
	redis.NewScript(lua.Set).Hash():     "set",
	redis.NewScript(lua.Sweep).Hash():   "sweep",
}

// saw takes up one command and its reply. The caller holds the exchange's lock.
func (a *account) saw(args []string, reply []byte) {
	if !ofThrottle(args) {
		return
	}
	values := decode(reply)
	if values == nil {
		if text := string(reply); !strings.Contains(text, "NOSCRIPT") && !strings.Contains(text, "THROTTLE_CONTROLS") &&
			!strings.Contains(text, "THROTTLE_LEDGERS") && !strings.Contains(text, "THROTTLE_WEIGHT") {
			a.world.errorf("script %s refused: %.200s", verbs[args[1]], text)
		}
		return
	}
	n, _ := strconv.Atoi(args[2])
	keys, argv := args[3:3+n], args[3+n:]
	switch verbs[args[1]] {
	case "reserve":
		a.reserved(argv, values)
	case "pull":
		a.pulled(argv, values)
	case "cancel":
		a.cancelled(argv, values)
	case "settle":
		a.settled(argv, values)
	case "usage":
		a.usage(keys, argv, values)
	case "set":
		if a.set[argv[0]] = argv[1]; argv[1] == "" {
			delete(a.set, argv[0])
		}
		if scope, _, is := strings.Cut(strings.TrimPrefix(argv[0], "%"), ":"); is {
			a.touched[scope] = true
		}
	}
}

func integer(v any) int64 {
	n, _ := v.(int64)
	return n
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func (a *account) reserved(argv []string, reply []any) {
	nonce, ledgers, lane, id := argv[3], argv[4], argv[6], argv[7]
	numbers := strings.Split(argv[5], " ")
	weight, plan := number(numbers[0]), numbers[len(numbers)-1] == "1"
	outcome, now, start, replayed := integer(reply[0]), integer(reply[1]), integer(reply[2]), integer(reply[6]) == 1
	fair, _, _ := strings.Cut(lane, "|")
	if outcome == 3 {
		a.join(fair, id)
	} else {
		delete(a.lines[fair], id)
	}
	delete(a.bookings, id)
	record := a.records[id]
	known := record != nil && !record.settled && !record.gone && record.nonce == nonce && record.ledgers == ledgers
	switch {
	case outcome == 2:
		keys, _, _ := strings.Cut(ledgers, ".")
		a.bookings[id] = booking{slot: start, weight: weight, keys: keys}
	case outcome == 1 && replayed:
		if !known || record.at != start {
			a.world.errorf("%s was granted again for %d, but it was not granted before: %+v", id, start, record)
			return
		}
		record.answered, record.delay = time.Now(), time.Duration(start-now)*time.Microsecond
	case outcome == 1:
		c := &charge{
			job: id, nonce: nonce, ledgers: ledgers, at: start, weight: weight, units: weight,
			answered: time.Now(), delay: time.Duration(start-now) * time.Microsecond,
		}
		if known { // the answer was lost for long: the charge moves
			record.gone, record.units = true, 0
		}
		a.grant(c, lane)
	}
	if known && outcome != 1 { // its charge is taken away where the job is placed anew
		record.gone, record.units = true, 0
	} else if record != nil && outcome != 1 && !plan {
		record.settled = true
	}
}

func (a *account) join(fair, id string) {
	if a.lines[fair] == nil {
		a.lines[fair] = map[string]bool{}
	}
	a.lines[fair][id] = true
}

// grant enters a charge, and checks that every window which contains its start has room
// for it, under what is in force now.
func (a *account) grant(c *charge, lane string) {
	a.grants++
	a.records[c.job] = c
	a.charges[c.job+" "+c.nonce] = c
	for _, scope := range a.world.plan.scopes {
		key, met := keyIn(lane, scope.Name, a.world.fair)
		if !met || a.modeOf(scope) == throttle.Off {
			continue
		}
		name := scope.Name + ":" + key
		inForce := a.limitsOf(scope, key)
		if len(inForce) == 0 && len(scope.Limits) == 0 {
			continue
		}
		a.byKey[name] = append(a.byKey[name], c)
		if a.modeOf(scope) == throttle.Shadow {
			continue
		}
		for _, limit := range inForce {
			if held := fullest(a.byKey[name], c, limit.Window.Microseconds()); held > limit.Units {
				a.world.errorf("window over its limit: %s holds %d units of %s with %s, granted for %d", name, held, limit, c.job, c.at)
			}
		}
	}
}

// fullest is what the fullest window holds that contains a charge.
func fullest(charges []*charge, c *charge, window int64) int64 {
	var most int64
	for _, end := range charges {
		if end.at < c.at || end.at >= c.at+window {
			continue
		}
		var units int64
		for _, other := range charges {
			if other.at > end.at-window && other.at <= end.at {
				units += other.units
			}
		}
		most = max(most, units)
	}
	return most
}

// keyIn finds a scope's key in the name of a lane.
func keyIn(lane, scope, fairScope string) (string, bool) {
	fair, others, _ := strings.Cut(lane, "|")
	switch scope {
	case throttle.Global:
		return "", true
	case fairScope:
		return fair, true
	}
	for pair := range strings.SplitSeq(others, ",") {
		if name, key, _ := strings.Cut(pair, "="); name == scope {
			return key, true
		}
	}
	return "", false
}

func (a *account) modeOf(scope throttle.Scope) throttle.Mode {
	letter, is := a.set["~"+scope.Name]
	if !is {
		letter = a.set["~"]
	}
	if letter == "" {
		return throttle.Enforce
	}
	return throttle.Mode(strings.Index("eso", letter))
}

func (a *account) limitsOf(scope throttle.Scope, key string) []throttle.Limit {
	text, is := a.set["%"+scope.Name+":"+key]
	if !is {
		text, is = a.set["%"+scope.Name+":"]
	}
	if !is {
		return scope.Limits
	}
	limits, err := throttle.ParseLimits(text)
	if err != nil {
		a.world.errorf("what is set for %s cannot be read: %v", scope.Name, err)
	}
	return limits
}

func (a *account) pulled(argv []string, reply []any) {
	lane, keys := argv[3], argv[4]
	fair, _, _ := strings.Cut(lane, "|")
	for rest := reply[2:]; len(rest) > 0; rest = rest[3:] {
		id, weight := text(rest[0]), integer(rest[1])
		var ready []string
		for key, jobs := range a.lines {
			if len(jobs) > 0 {
				ready = append(ready, key)
			}
		}
		slices.Sort(ready)
		a.pulls = append(a.pulls, pulled{fair: fair, weight: weight, ready: ready})
		if !a.lines[fair][id] {
			a.world.errorf("%s was pulled from the line of %q, but did not stand in it", id, fair)
		}
		delete(a.lines[fair], id)
		a.bookings[id] = booking{slot: integer(rest[2]), weight: weight, keys: keys}
	}
}

func (a *account) cancelled(argv []string, reply []any) {
	nonce, ledgers, lane, id := argv[3], argv[4], argv[6], argv[7]
	numbers := strings.Split(argv[5], " ")
	keep, grace := numbers[1] == "1", number(numbers[2])
	now := integer(reply[1])
	if integer(reply[0]) == 0 {
		return
	}
	b, booked := a.bookings[id]
	keys, _, _ := strings.Cut(ledgers, ".")
	holds := booked && b.keys == keys && b.slot+grace >= now
	if record := a.records[id]; !holds && record != nil && record.nonce == nonce && record.ledgers == ledgers && record.at > now && !record.settled {
		record.gone, record.settled, record.units = true, true, 0
		if keep {
			a.bookings[id] = booking{slot: record.at, weight: record.weight, keys: keys}
		}
	}
	if fair, _, _ := strings.Cut(lane, "|"); !keep {
		delete(a.bookings, id)
		delete(a.lines[fair], id)
	}
}

func (a *account) settled(argv []string, reply []any) {
	if integer(reply[0]) == 0 {
		return
	}
	numbers := strings.Split(argv[5], " ")
	c := a.charges[argv[7]+" "+argv[3]]
	switch {
	case c == nil:
		a.world.errorf("%s was settled, but not granted", argv[7])
	case c.settled || c.gone:
		a.world.errorf("%s was settled twice, or after it was given back: %+v", argv[7], c)
	default:
		c.units, c.settled = number(numbers[2]), true
	}
}

// usage compares what Redis says to be used with what was granted. Where limits were
// set, a start may count for longer, by what it was adopted with: then at least.
func (a *account) usage(keys, argv []string, reply []any) {
	if len(keys) < 2 {
		return // nothing is counted
	}
	_, name, _ := strings.Cut(keys[1], ":key:")
	scope, _, _ := strings.Cut(name, ":")
	now := integer(reply[0])
	a.usages++
	for i, limit := range argv[5:] {
		numbers := strings.Split(limit, " ")
		window, precision := number(numbers[1]), number(numbers[2])
		edge := now - window
		if precision > 1 && !a.touched[scope] {
			span := (window+precision-1)/precision*precision + precision
			edge = now - now%precision - span
		}
		var units int64
		for _, c := range a.byKey[name] {
			if at := c.at - c.at%precision; at > edge && !a.touched[scope] || c.at > edge && a.touched[scope] {
				units += c.units
			}
		}
		used, booked := integer(reply[1+3*i]), integer(reply[2+3*i])
		if a.quiet && booked > 0 {
			a.world.errorf("usage of %s, %s: %d booked, and nobody waits", name, limit, booked)
		}
		if used < units || used > units && !a.touched[scope] {
			a.world.errorf("usage of %s, %s: %d used, the account says %d", name, limit, used, units)
		}
	}
}

func (c *charge) String() string {
	return fmt.Sprintf("%s at %d: %d of %d units, settled %t, given back %t", c.job, c.at, c.units, c.weight, c.settled, c.gone)
}
