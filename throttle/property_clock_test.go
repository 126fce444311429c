package throttle_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPropertyClock: Redis' clock steps back and forth while jobs come, wait, start and are settled,
// upstreams report, and limits and modes change. Places are kept until their lease is over. By a time that
// goes on with the clock and stands still where it steps back, no window is over a limit that is in force;
// and when the clock goes evenly again, and nothing is set any more, all start in about as long as their
// limits need, however far it stepped. Nothing of this asks the model, which has the scripts' algorithm.
func TestPropertyClock(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { clockHistory(t, client) })
	})
}

// stepper brings jobs as workers do, by a time of its own, against which Redis' clock steps: a
// booked job comes after its delay, a job in line when its guess is over, and the line is pulled
// when it is due, and now and then anyway.
type stepper struct {
	subject *scripted
	now     time.Time     // by Redis' clock
	passed  time.Duration // the workers' time
	ahead   time.Duration // by how much the clock has stepped forward
	jobs    []throttle.Job
	comes   map[int]time.Duration // by the workers' time
	pull    time.Duration         // the same
	account *machine              // of starts, by the workers' time and the steps forward
	grants  []throttle.Reservation
}

func newStepper(t *rapid.T, client *redis.Client) *stepper {
	scopes := drawScopesOf(t, time.Second, 7*time.Second, time.Minute)
	for i := range scopes {
		scopes[i].Floor = 0.5
	}
	options := throttle.Options{
		Lookahead: rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, time.Second,
			5 * time.Second}).Draw(t, "lookahead"),
		Timeout: 30 * time.Second,
	}
	scopes = drawRunning(t, scopes, options.Lookahead)
	return &stepper{
		subject: newScripted(newThrottle(t, client, scopes, &options)), now: dawn, comes: make(map[int]time.Duration),
		account: &machine{scopes: scopes, set: newOverrides(), starts: make(map[string]spent),
			places: make(map[string][]*heldPlace)},
	}
}

func clockHistory(t *rapid.T, client *redis.Client) {
	s := newStepper(t, client)
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		switch rapid.IntRange(0, 7).Draw(t, "what") {
		case 0:
			s.pullNow(t) // a driver does every half second
			s.step(rapid.SampledFrom([]time.Duration{
				-time.Millisecond, -time.Second, -29 * time.Second, -31 * time.Second, -2 * time.Minute,
				-2 * time.Hour, 10 * time.Second, 2 * time.Hour,
			}).Draw(t, "by"))
		case 1:
			s.run(t, s.passed+time.Duration(rapid.Int64Range(0, 20_000_000).Draw(t, "for"))*time.Microsecond)
		case 2:
			rapid.SampledFrom([]func(*rapid.T){s.report, s.settle, s.settle, s.setLimits, s.setMode}).Draw(t, "does")(t)
		default:
			s.arrive(t)
		}
	}
	s.reset(t)
	for range rapid.IntRange(0, 6).Draw(t, "still arrive") {
		s.run(t, s.passed+time.Duration(rapid.Int64Range(0, 20_000_000).Draw(t, "for"))*time.Microsecond)
		s.arrive(t)
	}
	// A small step is waited for, an upstream closes a key for five minutes at most, and each job may need a window and a
	// sub-window of that length.
	s.run(t, s.passed+8*time.Minute+time.Duration(len(s.jobs))*2*time.Minute)
	for i := range s.comes {
		t.Fatalf("%s has not started", s.jobs[i].ID)
	}
}

func (s *stepper) arrive(t *rapid.T) {
	job := s.account.draw(t)
	job.ID, job.Deadline, job.Nonce = fmt.Sprintf("job%d", len(s.jobs)), time.Time{}, ""
	s.jobs = append(s.jobs, job)
	s.ask(t, len(s.jobs)-1)
}

// mustBe fails the history if a call fails.
func mustBe(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stepper) report(t *rapid.T) {
	r := throttle.Report{
		Refused:    rapid.Bool().Draw(t, "refused"),
		RetryAfter: rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute}).Draw(t, "asks to wait"),
	}
	ago := rapid.SampledFrom([]time.Duration{-1, 0, time.Second, time.Minute, 3 * time.Hour}).Draw(t, "started")
	if ago >= 0 {
		r.Started = s.now.Add(-ago)
	}
	_, err := s.subject.Report(s.now, "tenant", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "of"), r)
	mustBe(t, err)
}

// settle settles a grant for less, once.
func (s *stepper) settle(t *rapid.T) {
	if len(s.grants) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.grants)-1).Draw(t, "grant")
	granted := s.grants[i]
	s.grants = append(s.grants[:i:i], s.grants[i+1:]...)
	actual := granted.Job.Weight * rapid.Int64Range(0, 1).Draw(t, "halves") / 2
	done, err := s.subject.Settle(s.now, granted, actual)
	if mustBe(t, err); !done {
		return
	}
	start := s.account.starts[granted.Job.ID+" "]
	for _, scope := range s.account.scopes {
		_, own := granted.Job.Costs[scope.Name]
		if name := scope.Name + ":" + granted.Job.Keys[scope.Name]; !own && start.units[name] > 0 {
			start.units[name] = actual
		}
	}
}

func (s *stepper) setLimits(t *rapid.T) {
	scope, key := s.account.drawOverridden(t)
	limits := rapid.SliceOfNDistinct(drawLimit([]time.Duration{time.Second, 7 * time.Second, time.Minute},
		[]int64{0, 1, 2, 5, 40, 1000, throttle.Unlimited}), 1, 2,
		func(l throttle.Limit) time.Duration { return l.Window }).Draw(t, "limits")
	s.passes()
	mustBe(t, s.subject.SetLimits(s.now, scope.Name, key, limits, time.Time{}))
	s.account.set.own[scope.Name+":"+key] = setUntil[[]throttle.Limit]{is: limits}
}

func (s *stepper) setMode(t *rapid.T) {
	scope := rapid.SampledFrom(s.account.scopes).Draw(t, "of").Name
	mode := rapid.SampledFrom([]throttle.Mode{throttle.Enforce, throttle.Shadow, throttle.Off}).Draw(t, "mode")
	s.passes()
	mustBe(t, s.subject.SetMode(s.now, scope, mode, time.Time{}))
	s.account.set.modes[scope] = setUntil[throttle.Mode]{is: mode}
}

// passes lets time go on before a setting changes, as it does between two scripts.
func (s *stepper) passes() {
	s.now = s.now.Add(time.Microsecond)
	s.passed += time.Microsecond
}

// reset takes back all settings.
func (s *stepper) reset(t *rapid.T) {
	s.passes()
	for _, scope := range s.account.scopes {
		keys := []string{""}
		if scope.Name != throttle.Global {
			keys = []string{"", "a", "b", "x", "y"}
		}
		for _, key := range keys {
			mustBe(t, s.subject.ResetLimits(s.now, scope.Name, key))
		}
		mustBe(t, s.subject.ResetMode(s.now, scope.Name))
	}
	s.account.set = newOverrides()
}

func (s *stepper) ask(t *rapid.T, i int) {
	r, err := s.subject.Reserve(s.now, s.jobs[i])
	var blocked *throttle.BlockedError
	if errors.As(err, &blocked) {
		s.comes[i] = s.passed + 5*time.Second
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(s.comes, i)
	switch r.Outcome {
	case throttle.Granted:
		s.grants = append(s.grants, r)
		r.Start = dawn.Add(s.passed + s.ahead + r.Delay())
		s.account.started(t, r)
	case throttle.Booked:
		s.comes[i] = s.passed + r.Delay()
		if r.Delay() > s.jobs[i].MaxWait { // else it was not granted a start that is as near: it is not to come before
			s.comes[i] -= s.jobs[i].MaxWait
		}
	case throttle.Waiting:
		s.comes[i] = s.passed + r.AskAgain.Sub(r.Now)
	}
	s.isDue(r.Next)
}

func (s *stepper) step(by time.Duration) {
	s.now = s.now.Add(by)
	s.ahead += max(0, by)
}

// isDue notes when the next pull is due.
func (s *stepper) isDue(next time.Time) {
	if !next.IsZero() {
		s.pull = min(s.pull, s.passed+max(50*time.Millisecond, next.Sub(s.now)))
	}
}

// run goes on while a job waits, until an instant of the workers' time.
func (s *stepper) run(t *rapid.T, until time.Duration) {
	for len(s.comes) > 0 {
		at, who := s.pull, -1
		for i, comes := range s.comes {
			if comes < at || comes == at && i < who {
				at, who = comes, i
			}
		}
		if at >= until {
			break
		}
		s.pass(at)
		if who >= 0 {
			s.ask(t, who)
			continue
		}
		s.pullNow(t)
	}
	s.pass(until)
}

func (s *stepper) pullNow(t *rapid.T) {
	pulled, err := s.subject.Pull(s.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range pulled.Booked {
		i := jobNumber(t, r)
		s.comes[i] = s.passed + max(0, r.Start.Sub(s.now)-s.jobs[i].MaxWait)
	}
	for _, r := range pulled.Overdue { // also a job that weighs more than a limit in force
		s.comes[jobNumber(t, r)] = s.passed
	}
	s.pull = s.passed + 5*time.Second
	s.isDue(pulled.Next)
}

func jobNumber(t *rapid.T, r throttle.Reservation) (i int) {
	if _, err := fmt.Sscanf(r.Job.ID, "job%d", &i); err != nil {
		t.Fatal(err)
	}
	return i
}

func (s *stepper) pass(until time.Duration) {
	if until > s.passed {
		s.now = s.now.Add(until - s.passed)
		s.passed = until
	}
}
