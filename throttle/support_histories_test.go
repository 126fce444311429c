package throttle_test

import (
	crand "crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// operation is a call as a history has it.
type operation struct {
	throttle   int // of the history's
	call       string
	now        time.Time // by the script's clock
	job        throttle.Job
	ids        []string             // that leave
	grant      throttle.Reservation // to be settled, or made a booking again
	actual     int64
	scope, key string
	until      time.Time
	limits     []throttle.Limit
	mode       throttle.Mode
	said       throttle.Report
}

// answer is what a call returned. Of a lost one only the call is known.
type answer struct {
	value any
	err   error
	lost  bool
}

// ask makes the call.
func (o operation) ask(s throttletest.Subject) answer {
	var a answer
	switch o.call {
	case "reserve":
		a.value, a.err = s.Reserve(o.now, o.job)
	case "cancel":
		a.value, a.err = s.Cancel(o.now, o.job)
	case "leave":
		a.value, a.err = s.Leave(o.now, o.ids)
	case "release":
		a.value, a.err = s.Release(o.now, o.grant)
	case "settle":
		a.value, a.err = s.Settle(o.now, o.grant, o.actual)
	case "refund":
		a.value, a.err = s.Refund(o.now, o.grant)
	case "done":
		a.value, a.err = s.Done(o.now, o.grant)
	case "renew":
		a.value, a.err = s.Renew(o.now, o.grant)
	case "pull":
		a.value, a.err = s.Pull(o.now)
	case "usage":
		a.value, a.err = s.Usage(o.now, o.scope, o.key)
	case "report":
		said, err := s.Report(o.now, o.scope, o.key, o.said)
		said.Throttle = ""
		a.value, a.err = said, err
	case "pause":
		a.value, a.err = s.Pause(o.now, o.scope, o.key, o.until)
	case "resume":
		a.value, a.err = s.Resume(o.now, o.scope, o.key)
	case "limits":
		a.err = s.SetLimits(o.now, o.scope, o.key, o.limits, time.Time{})
	case "reset":
		a.err = s.ResetLimits(o.now, o.scope, o.key)
	case "mode":
		a.err = s.SetMode(o.now, o.scope, o.mode, time.Time{})
	default:
		panic("no such call: " + o.call)
	}
	return a
}

// String says what was asked.
func (o operation) String() string {
	at := o.now.UnixMicro() % 1e9
	switch o.call {
	case "reserve", "cancel":
		return fmt.Sprintf("%d %s %s/%s of %d", at, o.call, o.job.ID, o.job.Nonce, o.job.Weight)
	case "settle", "refund", "release", "done", "renew":
		return fmt.Sprintf("%d %s %s/%s at %d", at, o.call, o.grant.Job.ID, o.grant.Job.Nonce, o.actual)
	case "leave":
		return fmt.Sprintf("%d leave %v", at, o.ids)
	}
	return fmt.Sprintf("%d %s %s %s", at, o.call, o.scope, o.key)
}

// String says what was answered.
func (a answer) String() string {
	r, is := a.value.(throttle.Reservation)
	switch {
	case a.lost:
		return "?"
	case a.err != nil:
		return a.err.Error()
	case is:
		return fmt.Sprintf("%s %d, ahead %d, next %d, hold %v", r.Outcome, r.Start.UnixMicro()%1e9, r.Ahead,
			r.Next.UnixMicro()%1e9, r.Hold)
	}
	return fmt.Sprintf("%+v", a.value)
}

// equals reports whether two answers are the same. Times are compared as instants: the test writes its own instant,
// which may be of another zone, into an answer that comes late.
func (a answer) equals(b answer) bool {
	full, other := new(throttle.LineFullError), new(throttle.LineFullError)
	if errors.As(a.err, &full) && errors.As(b.err, &other) {
		return full.Scope == other.Scope && full.Key == other.Key && full.Waiting == other.Waiting
	}
	if a.err != nil || b.err != nil {
		return a.err != nil && b.err != nil && a.err.Error() == b.err.Error()
	}
	if r, is := a.value.(throttle.Reservation); is {
		other, isOther := b.value.(throttle.Reservation)
		return isOther && cmp.Equal(certain(r), certain(other), whole) // guesses are by what a process has seen
	}
	return cmp.Equal(a.value, b.value, whole)
}

// arena is where clients contend: throttles of one kind on one server, with their calls and
// answers.
type arena struct {
	t        *testing.T
	scopes   []throttle.Scope
	options  throttle.Options
	names    []string
	jobs     []throttle.Job // that all ask for
	calls    []string       // that are made, the oftener the more often
	ownClock bool           // Redis' instants, not the test's

	ticks   atomic.Int64 // orders calls and returns
	now     time.Time    // of all calls of a round
	tooSlow atomic.Bool  // a call was made again so late that its grant was given back

	mu      sync.Mutex
	history []porcupine.Operation
	grants  [][]throttle.Reservation // of each throttle
}

// newArena has throttles with two tenants, who have more jobs than there is room for.
func newArena(t *testing.T, throttles int) *arena {
	t.Helper()
	a := &arena{
		t: t,
		scopes: tenantAndGlobal(
			throttle.Limit{Units: 5, Window: time.Second, Precision: throttle.Exact},
			throttle.Limit{Units: 8, Window: time.Second, Precision: 100 * time.Millisecond}),
		options: throttle.Options{Timeout: patient, Grace: 300 * time.Millisecond,
			Lookahead: 700 * time.Millisecond, BreakAfter: -1},
		now:    historiesBegin,
		grants: make([][]throttle.Reservation, throttles),
	}
	for i := range a.scopes {
		a.scopes[i].Limits = append(a.scopes[i].Limits,
			throttle.Limit{Units: 12, Running: true, Lease: 1500 * time.Millisecond})
		a.scopes[i].Runs = 300 * time.Millisecond // else each client guesses by the jobs that it has ended
	}
	a.scopes[0].Floor, a.scopes[1].Floor = 0.7, 0.8
	a.scopes[0].Cooldown = 50 * time.Millisecond
	for range throttles {
		a.names = append(a.names, "t"+crand.Text())
	}
	for i := range 10 {
		job := throttle.Job{ID: fmt.Sprint("j", i), Weight: 1 + int64(i)%3, Keys: of([]string{"a", "b"}[i%2])}
		if i%3 < 2 {
			job.MaxWait = 700 * time.Millisecond
		}
		a.jobs = append(a.jobs, job)
	}
	for call, often := range map[string]int{
		"reserve": 40, "pull": 14, "cancel": 6, "leave": 3, "release": 14, "settle": 6, "refund": 3, "done": 6,
		"renew": 3, "usage": 8, "report": 2, "pause": 4,
		"resume": 6, "limits": 2, "reset": 1, "mode": 3,
	} {
		a.calls = append(a.calls, slices.Repeat([]string{call}, often)...)
	}
	slices.Sort(a.calls)
	return a
}

// vary gives every other arena quotas and hours beside its windows, whose edges come after some rounds, and some bounds
// of lines. It depends on the seed, so that its history can be played again.
//
// Redis has no edges at first: calls have them stored. There is no quota of a month: a heavy job would claim a start in
// the next month, beyond the edges of days and hours that are stored. A pull has more edges stored then, and a pull one
// second later notes the claim; the model, which computes every edge, notes it at once.
func (a *arena) vary(seed uint64) {
	edge := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC) // a Saturday
	day := throttle.Calendar{Unit: throttle.Day, Zone: "UTC"}
	week := throttle.Calendar{Unit: throttle.Week, Days: 5, Hours: 5, Zone: "Asia/Karachi"} // begins at the same edge
	ofTenant, ofAll := &a.scopes[0], &a.scopes[1]
	switch seed % 6 {
	case 1:
		ofTenant.Limits = append(ofTenant.Limits, throttle.Limit{Units: 6, Calendar: day})
		ofAll.Limits = append(ofAll.Limits, throttle.Limit{Units: 9, Calendar: week})
	case 3: // the hours open
		ofAll.Limits = append(ofAll.Limits, throttle.OpenHours("Sat-Thu 00:00-24:00 @UTC"))
		ofTenant.Limits = append(ofTenant.Limits, throttle.Limit{Units: 7, Calendar: week})
	case 5: // the hours close
		ofTenant.Limits = append(ofTenant.Limits, throttle.OpenHours("00:01-24:00 @UTC"))
		ofAll.Limits = append(ofAll.Limits, throttle.Limit{Units: 30, Calendar: day})
	default:
		return
	}
	a.now = edge.Add(-600 * time.Millisecond)
	ofTenant.MaxWaiting, ofAll.MaxWaiting = throttle.Length{Units: 6}, throttle.Length{Jobs: 5}
	for i := range a.jobs {
		a.jobs[i].Bounded = i%2 == 0
	}
}

// contender is one client: throttles of its own, and what it draws.
type contender struct {
	*arena
	id     int
	random *rand.Rand
	drawn  int
	own    []*scripted
}

func (a *arena) contender(id int, seed uint64, client *redis.Client) *contender {
	c := &contender{arena: a, id: id, random: rand.New(rand.NewPCG(seed, uint64(id)))}
	for _, name := range a.names {
		options := a.options
		th, err := throttle.New(name, client, a.scopes, &options)
		if err != nil {
			a.t.Fatal(err)
		}
		s := newScripted(th)
		if a.ownClock {
			th.SetNow(nil)
		}
		c.own = append(c.own, s)
	}
	return c
}

// callsInRound is how many calls a client makes in a round, all of them at one instant.
const callsInRound = 3

// contend has clients make as many calls each, side by side. By the test's own clock they
// do so in rounds, so that no call has an earlier instant than one that was made before it.
func (a *arena) contend(seed uint64, clients, each int, newClient func() *redis.Client) {
	all := make([]*contender, clients)
	for id := range all {
		all[id] = a.contender(id, seed, newClient())
	}
	inRound := each
	if !a.ownClock {
		inRound = callsInRound
	}
	random := rand.New(rand.NewPCG(seed, 1000))
	for made := 0; made < each; made += inRound {
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for _, c := range all {
			wg.Go(func() {
				<-begin
				for range inRound {
					c.make(c.draw())
				}
			})
		}
		close(begin)
		wg.Wait()
		a.now = a.now.Add(time.Duration(random.Int64N(300_000)) * time.Microsecond)
	}
}

// draw chooses a call. Its instant is its own when it is made.
func (c *contender) draw() operation {
	o := operation{throttle: c.random.IntN(len(c.names)), call: c.calls[c.random.IntN(len(c.calls))]}
	o.job = c.jobs[c.random.IntN(len(c.jobs))]
	c.drawn++
	o.job.Nonce = fmt.Sprintf("c%d-%d", c.id, c.drawn)
	o.job.Plan = c.random.IntN(10) == 0
	o.scope, o.key = throttle.Global, ""
	if c.random.IntN(2) == 0 {
		o.scope, o.key = "tenant", o.job.Keys["tenant"]
	}
	o.actual, o.until = c.random.Int64N(5), c.now.Add(200*time.Millisecond)
	o.ids = []string{o.job.ID, c.jobs[c.random.IntN(len(c.jobs))].ID}
	if o.ids[0] == o.ids[1] {
		o.ids = o.ids[:1]
	}
	o.said.Refused = c.random.IntN(2) == 0
	if o.said.RetryAfter = time.Millisecond; c.random.IntN(2) == 0 {
		o.said.Limits = []throttle.ReportedLimit{{Units: c.random.Int64N(12), Remaining: c.random.Int64N(12) - 1}}
	}
	if o.call == "mode" && c.random.IntN(2) == 0 {
		o.mode = throttle.Shadow
	}
	for _, scope := range c.scopes {
		if o.call == "limits" && scope.Name == o.scope {
			o.limits = slices.Clone(scope.Limits)
			o.limits[0].Units += c.random.Int64N(6) - 2
			if last := &o.limits[len(o.limits)-1]; last.Calendar.Unit != "" {
				last.Units += c.random.Int64N(3)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch grants := c.grants[o.throttle]; o.call {
	case "settle", "refund", "release", "done", "renew":
		if len(grants) == 0 {
			o.call = "reserve"
		} else {
			o.grant = grants[len(grants)-1-c.random.IntN(min(3, len(grants)))]
		}
		for _, granted := range slices.Backward(grants) {
			if o.call == "release" && granted.Start.After(c.now) && c.random.IntN(10) > 0 {
				o.grant = granted // only what is still ahead can be
				break
			}
		}
	}
	return o
}

// make makes a call and writes it down. One whose answer is lost is made again, with the
// same nonce: a call of its own, except where that gets the answer which was lost, of
// whichever of the calls before.
func (c *contender) make(o operation) {
	o.now = c.now
	first, began := c.ticks.Add(1), time.Now()
	called := first
	a := o.ask(c.own[o.throttle])
	for errors.Is(a.err, throttle.ErrUnavailable) {
		lost := called
		called = c.ticks.Add(1)
		a = o.ask(c.own[o.throttle])
		if !isKept(began) {
			c.tooSlow.Store(true)
		}
		r, is := a.value.(throttle.Reservation)
		replayed := is && a.err == nil && r.Replayed
		if replayed {
			r.Replayed, r.Now = false, o.now
			a.value, called = r, first
		}
		if !replayed || lost != first {
			c.write(o, lost, answer{lost: true}, never)
		}
	}
	returned := c.ticks.Add(1)
	if c.ownClock {
		o.now = a.instant()
	}
	c.write(o, called, a, returned)
}

// keptFor is less than how long a grant is kept whose answer was lost: a later one is given
// back before the job is decided anew, which no history has. It is a tenth of the shortest lease here.
const keptFor = 150 * time.Millisecond

// isKept reports whether a grant whose answer was lost is kept for sure, by when it was asked for.
// On a machine that stands still meanwhile the grant may have been given back.
func isKept(asked time.Time) bool { return time.Since(asked) < keptFor }

// never is when a call whose answer is lost returns.
const never = math.MaxInt64

func (c *contender) write(o operation, called int64, a answer, returned int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, porcupine.Operation{ClientId: c.id, Input: o, Call: called, Output: a, Return: returned})
	if r, is := a.value.(throttle.Reservation); is && r.Outcome == throttle.Granted {
		c.grants[o.throttle] = append(c.grants[o.throttle], r)
	}
}

// instant returns when a call was decided, by its answer.
func (a answer) instant() time.Time {
	switch value := a.value.(type) {
	case throttle.Reservation:
		return value.Now
	case inspect.Usage:
		return value.Now
	}
	panic(fmt.Sprintf("%T tells no instant", a.value))
}

// state is the state of one throttle between two calls.
type state struct {
	model *throttletest.Model
	now   time.Time // of the last call, by Redis' own clock
}

// specification is what each throttle of an arena does by itself, one call after the
// other: the model.
func (a *arena) specification() porcupine.Model {
	return porcupine.Model{
		Partition: a.parts,
		Init:      func() any { return state{model: throttletest.NewModel(a.scopes, a.options)} },
		Step:      a.step,
		Equal: func(one, other any) bool {
			first, isState := one.(state)
			second, isToo := other.(state)
			return isState && isToo && first.now.Equal(second.now) && first.model.Equal(second.model)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v: %v", input, output) },
	}
}

// parts are the histories of the throttles, which have nothing to do with each other.
func (a *arena) parts(history []porcupine.Operation) [][]porcupine.Operation {
	parts := make([][]porcupine.Operation, len(a.names))
	for _, o := range history {
		if asked, is := o.Input.(operation); is {
			parts[asked.throttle] = append(parts[asked.throttle], o)
		}
	}
	return parts
}

// step reports whether a call can be the next, and returns the state after it.
func (a *arena) step(before, input, output any) (bool, any) {
	at, isState := before.(state)
	asked, isOperation := input.(operation)
	answered, isAnswer := output.(answer)
	if !isState || !isOperation || !isAnswer || a.ownClock && asked.now.Before(at.now) {
		return false, before
	}
	after := state{model: at.model.Clone()}
	if a.ownClock {
		after.now = asked.now
	}
	want := asked.ask(after.model)
	return answered.lost || answered.equals(want), after
}

// linearize looks for an order of the calls in which the model answers the same.
func (a *arena) linearize() (porcupine.CheckResult, porcupine.LinearizationInfo) {
	return porcupine.CheckOperationsVerbose(a.specification(), a.history, patient)
}

// mustLinearize fails the test if there is no such order, and logs how far one goes.
func (a *arena) mustLinearize(seed uint64, seen *tally) {
	a.t.Helper()
	if a.tooSlow.Load() {
		seen.slow++
		return
	}
	began := time.Now()
	result, info := a.linearize()
	seen.took += time.Since(began)
	longest := make([][]porcupine.Operation, len(a.names))
	for i, partial := range info.PartialLinearizationsOperations() {
		for _, order := range partial {
			if len(order) > len(longest[i]) {
				longest[i] = order
			}
		}
	}
	seen.add(a, longest)
	if result == porcupine.Ok {
		return
	}
	a.t.Errorf("seed %d: the history of %d calls is %s", seed, len(a.history), result)
	for i, part := range a.parts(a.history) {
		a.t.Logf("throttle %d: %d of %d calls can be put in order, the last are", i, len(longest[i]), len(part))
		in := make(map[int64]bool)
		for n, o := range longest[i] {
			if in[o.Call] = true; n >= len(longest[i])-5 {
				a.t.Logf("  client %d, %d to %d: %v: %v", o.ClientId, o.Call, o.Return, o.Input, o.Output)
			}
		}
		rest := slices.DeleteFunc(slices.Clone(part), func(o porcupine.Operation) bool { return in[o.Call] })
		for _, o := range rest[:min(10, len(rest))] {
			a.t.Logf("  not client %d, %d to %d: %v: %v", o.ClientId, o.Call, o.Return, o.Input, o.Output)
		}
	}
}

// tally counts what happened in histories.
type tally struct {
	histories, calls int
	slow             int // histories that are not looked at, on a machine that has no time for them
	lost             int // replies
	overlaps         int // pairs of calls of one throttle that were under way at once
	overtaken        int // calls that had to be put before one that was made earlier
	outcomes         map[throttle.Outcome]int
	full             int            // jobs that were refused since a line was full
	held             map[string]int // jobs that were held back, by the kind of the limit
	did              map[string]int // calls that have changed something, by their names
	took             time.Duration  // to put them in order
}

func (s *tally) add(a *arena, orders [][]porcupine.Operation) {
	if s.outcomes == nil {
		s.outcomes, s.did, s.held = make(map[throttle.Outcome]int), make(map[string]int), make(map[string]int)
	}
	s.histories, s.calls = s.histories+1, s.calls+len(a.history)
	for _, o := range a.history {
		answered, isAnswer := o.Output.(answer)
		asked, isAsked := o.Input.(operation)
		if full := new(throttle.LineFullError); isAnswer && errors.As(answered.err, &full) {
			s.full++
		}
		if !isAnswer || !isAsked || answered.err != nil || answered.lost {
			continue
		}
		if r, is := answered.value.(throttle.Reservation); is {
			s.outcomes[r.Outcome]++
			switch {
			case r.Hold == nil:
			case r.Hold.Limit.Hours != "":
				s.held["hours"]++
			case r.Hold.Limit.Calendar.Unit != "":
				s.held["a quota"]++
			}
		}
		if answered.changed() {
			s.did[asked.call]++
		}
	}
	for _, part := range a.parts(a.history) {
		for i, o := range part {
			for _, other := range part[:i] {
				if o.Call < other.Return && other.Call < o.Return && o.Return != never && other.Return != never {
					s.overlaps++
				}
			}
		}
	}
	for _, order := range orders {
		for i := 1; i < len(order); i++ {
			if order[i].Call < order[i-1].Call {
				s.overtaken++
			}
		}
	}
}

// changed reports whether a call has changed anything, as far as its answer says.
func (a answer) changed() bool {
	switch value := a.value.(type) {
	case bool:
		return value
	case []bool:
		return slices.Contains(value, true)
	case throttle.Pulled:
		return len(value.Booked) > 0
	}
	return true
}

// enough is what a test wants of its histories, so that it has tested something. How the calls
// of several clients meet is the machine's choice: histories are added until there is enough.
type enough struct {
	calls    []string           // each has changed something
	outcomes []throttle.Outcome // each came once in a history, on average
	lost     int                // replies
}

// lacks returns what the histories lack, nothing if there is enough.
func (s *tally) lacks(want enough) (missing []string) {
	if s.histories == 0 {
		return []string{"no history was fast enough to be checked"}
	}
	for _, call := range want.calls {
		if s.did[call] == 0 {
			missing = append(missing, "no call of "+call+" has changed anything")
		}
	}
	for _, outcome := range want.outcomes {
		if s.outcomes[outcome] < s.histories {
			missing = append(missing, fmt.Sprintf("%d times %s", s.outcomes[outcome], outcome))
		}
	}
	if s.overlaps < s.calls/4 || s.overtaken < s.histories {
		missing = append(missing, "the calls hardly meet")
	}
	if s.lost < want.lost {
		missing = append(missing, fmt.Sprintf("%d replies were lost, not %d", s.lost, want.lost))
	}
	return missing
}

// until plays histories until there are n, and enough in them, or four times as many. What is still
// missing then is logged, since a slow machine may be the cause. In full runs it fails the test.
func (s *tally) until(t *testing.T, n uint64, want enough, play func(seed uint64)) {
	t.Helper()
	for seed := uint64(0); seed < n || seed < 4*n && len(s.lacks(want)) > 0; seed++ {
		play(seed)
	}
	if s.slow > 0 {
		t.Logf("%d histories were too slow to be checked", s.slow)
	}
	t.Logf("%d calls in %d histories, %d answers lost; %d pairs at once, %d overtaken; %v; put in order in %s",
		s.calls, s.histories, s.lost, s.overlaps, s.overtaken, s.outcomes, s.took)
	t.Logf("calls that have changed something: %v; %d lines were full, held back by %v", s.did, s.full, s.held)
	for _, missing := range s.lacks(want) {
		if longtest.Full() {
			t.Errorf("%d histories: %s", s.histories, missing)
		} else {
			t.Logf("NOT TESTED: %d histories: %s", s.histories, missing)
		}
	}
}
