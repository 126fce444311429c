package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// twins are two throttles on one server that read the same time: one decides job by job, the
// other decides for all jobs at once.
type twins struct {
	client   *redis.Client
	one, all *scripted
}

func newTwins(t testing.TB, client *redis.Client, scopes []throttle.Scope, options throttle.Options) twins {
	t.Helper()
	tw := twins{client: client, one: newScripted(newThrottle(t, client, scopes, &options)),
		all: newScripted(newThrottle(t, client, scopes, &options))}
	tw.one.at(dawn)
	tw.all.at(dawn)
	return tw
}

// alike asks both throttles and fails the test if an answer, or what is left in Redis, differs.
// Some differences are expected: jobs that come together arrive a microsecond after each other, so that they have
// an order, and all their answers have the Next of the last job.
func (tw twins) alike(t testing.TB, jobs []throttle.Job) (outcomes map[string]int) {
	t.Helper()
	outcomes = make(map[string]int)
	answers := tw.all.throttle.ReserveAll(t.Context(), jobs)
	if len(answers) != len(jobs) {
		t.Fatalf("%d answers to %d jobs", len(answers), len(jobs))
	}
	for i, job := range jobs {
		want, wantErr := tw.one.throttle.Reserve(t.Context(), job)
		got, gotErr := answers[i].Reservation, answers[i].Err
		if fmt.Sprintf("%T %v", wantErr, wantErr) != fmt.Sprintf("%T %v", gotErr, gotErr) {
			t.Errorf("job %d: got error %T %v, want %T %v", i, gotErr, gotErr, wantErr, wantErr)
		}
		if diff := cmp.Diff(want, got, whole, cmpopts.IgnoreFields(throttle.Reservation{}, "Next")); diff != "" {
			t.Errorf("job %d (-one by one +all):\n%s", i, diff)
		}
		outcomes[strings.TrimPrefix(fmt.Sprintf("%T ", gotErr), "<nil> ")+got.Outcome.String()]++
	}
	if diff := cmp.Diff(tw.left(t, tw.one), tw.left(t, tw.all)); diff != "" {
		t.Errorf("the state in Redis (-one by one +all):\n%s", diff)
	}
	return outcomes
}

// left returns the values that a throttle has in Redis, without arrivals, by the ends of their keys.
func (tw twins) left(t testing.TB, s *scripted) map[string]string {
	t.Helper()
	ends := make(map[string]string)
	for key, content := range keyspace(t, tw.client, s.throttle) {
		_, end, _ := strings.Cut(key, "}:4:")
		ends[end] = content
		switch kind, _, _ := strings.Cut(end, ":"); kind {
		case "lane": // arrival:costs:id
			ends[end] = regexp.MustCompile(`\b18000000\d{8}:`).ReplaceAllString(content, "")
		case "jobs": // slot costs arrival lane, or -arrival lane
			ends[end] = regexp.MustCompile(`:(\d+) (\S+) \d+ |:-\d+ `).ReplaceAllString(content, ":$1 $2 ")
		case "lanes": // by arrival
			lanes := regexp.MustCompile(`\S+\|[^ }]+`).FindAllString(content, -1)
			slices.Sort(lanes)
			ends[end] = fmt.Sprint(lanes)
		case "key": // expire, then its ledgers
			ends[end] = regexp.MustCompile(`^string \d+`).ReplaceAllString(content, "")
		}
	}
	return ends
}

// TestReserveAllIsReserve: ReserveAll leads to the same answers, errors and state as Reserve for one job after
// the other, for jobs of all kinds: valid and invalid jobs, plans, the same job again.
func TestReserveAllIsReserve(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.Per(30, 10*time.Second), throttle.Per(300, time.Minute)}},
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(101, 10*time.Second)}},
		{Name: "domain", Limits: []throttle.Limit{throttle.Per(20, 5*time.Second)}, Optional: true},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		seen := make(map[string]int)
		for seed := range uint64(4) {
			random := rand.New(rand.NewPCG(seed, 1))
			tw := newTwins(t, client, scopes, throttle.Options{Lookahead: []time.Duration{time.Second, maxWindow}[seed%2]})
			for round := range 2 {
				var jobs []throttle.Job
				for n := range 90 + random.IntN(50) {
					jobs = append(jobs, drawBatchJob(random, fmt.Sprintf("%d-%d", round, n)))
				}
				for outcome, n := range tw.alike(t, jobs) {
					seen[outcome] += n
				}
				tw.one.at(tw.one.now().Add(time.Duration(random.IntN(7)) * time.Second))
				tw.all.at(tw.one.now())
			}
		}
		for _, kind := range []string{
			"granted", "booked", "waiting", "*throttle.InvalidJobError undecided",
			"*throttle.NeverFitsError undecided", "*throttle.DeadlineError undecided",
		} {
			if seen[kind] < 4 {
				t.Errorf("the jobs are of too few kinds: %v", seen)
				break
			}
		}
	})
}

func drawBatchJob(random *rand.Rand, id string) throttle.Job {
	job := throttle.Job{ID: id, Nonce: "n" + id, Weight: 1 + random.Int64N(3),
		Keys: of(string(rune('a' + random.IntN(4)))), Plan: random.IntN(3) == 0}
	if random.IntN(2) == 0 {
		job.Keys["domain"] = string(rune('x' + random.IntN(2)))
	}
	switch random.IntN(20) {
	case 0:
		job.Weight = 21 // never fits where it names a domain
	case 1:
		job.Weight = -1
	case 2:
		delete(job.Keys, "tenant")
	case 3:
		job.Keys["planet"] = "x"
	case 4:
		job.Deadline = dawn.Add(time.Duration(random.IntN(3)) * time.Second)
	case 5:
		job.ID, job.Weight = "again", 2
	case 6:
		job.MaxWait = time.Duration(random.IntN(20)) * time.Second
	}
	return job
}

// TestReserveAllErrorsAtTheirPlaces: the error of one job is in the answer of this job, and does not affect the
// other jobs.
func TestReserveAllErrorsAtTheirPlaces(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.Per(2, 10*time.Second), throttle.Per(200, 10*time.Second))
		th := newThrottle(t, client, scopes, nil)
		job := func(id string, weight int64) throttle.Job {
			return throttle.Job{ID: id, Weight: weight, Keys: of("acme")}
		}
		var jobs []throttle.Job
		var invalid *throttle.InvalidJobError
		var never *throttle.NeverFitsError
		var late *throttle.DeadlineError
		want := make(map[int]any)
		for i := range 230 { // three round trips
			id := fmt.Sprint(i)
			switch {
			case i%50 == 7:
				want[i] = &invalid
				jobs = append(jobs, job(id, 0))
			case i%50 == 8:
				want[i] = &never
				jobs = append(jobs, job(id, 3))
			case i%50 == 9 && i > 9:
				want[i] = &late
				tooLate := job(id, 1)
				tooLate.Deadline = time.Now().Add(time.Second)
				jobs = append(jobs, tooLate)
			default:
				jobs = append(jobs, job(id, 1))
			}
		}
		fine := 0
		for i, answer := range th.ReserveAll(t.Context(), jobs) {
			switch kind, wrong := want[i]; {
			case wrong && !errors.As(answer.Err, kind):
				t.Errorf("job %d: got %v, want a %T", i, answer.Err, kind)
			case wrong && !cmp.Equal(answer.Reservation, throttle.Reservation{}, whole):
				t.Errorf("job %d: got %+v beside an error", i, answer.Reservation)
			case !wrong:
				fine++
				if answer.Err != nil || answer.Reservation.Job.ID != jobs[i].ID {
					t.Errorf("job %d: got %+v, %v", i, answer.Reservation, answer.Err)
				}
			}
		}
		usage, err := inspect.New(th).Usage(t.Context(), "tenant", "acme")
		if err != nil {
			t.Fatal(err)
		}
		if l := usage.Limits[0]; l.Used+l.Booked != int64(fine) {
			t.Errorf("%d used and %d booked, want %d in all", l.Used, l.Booked, fine)
		}
		if answers := th.ReserveAll(t.Context(), nil); len(answers) != 0 {
			t.Errorf("no jobs: got %v", answers)
		}
		for _, answer := range th.ReserveAll(nil, jobs[:2]) { //nolint:staticcheck // a mistake of a user
			var argument *throttle.ArgumentError
			if !errors.As(answer.Err, &argument) || argument.Argument != "ctx" {
				t.Errorf("no context: got %v", answer.Err)
			}
		}
	})
}

// hooked counts a client's calls of scripts, and may fail them or hold them up.
type hooked struct {
	calls    atomic.Int64
	fail     atomic.Bool
	failed   []any  // the last call that was failed
	answered func() // called after the server has answered; may be nil
}

var errHooked = errors.New("the hook says no")

func (h *hooked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hooked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			h.calls.Add(1)
		}
		if h.fail.Load() {
			h.failed = cmd.Args()
			cmd.SetErr(errHooked)
			return errHooked
		}
		err := next(ctx, cmd)
		if h.answered != nil {
			h.answered()
		}
		return err
	}
}

func (h *hooked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hookedClient is a client of the server whose calls are counted.
func hookedClient(t testing.TB, server *redis.Client) (*redis.Client, *hooked) {
	t.Helper()
	hook := new(hooked)
	client := redis.NewClient(&redis.Options{Addr: server.Options().Addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(hook)
	return client, hook
}

// manyJobs returns n jobs of weight 1.
func manyJobs(n int) []throttle.Job {
	jobs := make([]throttle.Job, n)
	for i := range jobs {
		jobs[i] = throttle.Job{ID: fmt.Sprint(i), Weight: 1}
	}
	return jobs
}

// TestLostQuestionIsNotDecidedLater: a call that did not reach Redis charges nothing later,
// neither when its process asks for other jobs nor when a copy of the call arrives: the job may
// have run elsewhere.
func TestLostQuestionIsNotDecidedLater(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		scopes := globalScope(throttle.Per(5, time.Hour))
		client, hook := hookedClient(t, server)
		th := newThrottle(t, client, scopes, &throttle.Options{BreakAfter: -1})
		other, err := throttle.New(th.Name(), server, scopes, &throttle.Options{Timeout: patient})
		if err != nil {
			t.Fatal(err)
		}
		reserve(t, th, throttle.Job{ID: "warm", Weight: 1}) // the script is loaded
		hook.fail.Store(true)
		for range 2 {
			if _, err := th.Reserve(t.Context(), throttle.Job{ID: "a", Weight: 1}); !errors.Is(err, throttle.ErrUnavailable) {
				t.Fatalf("got %v, want no answer", err)
			}
		}
		hook.fail.Store(false)
		for id, by := range map[string]*throttle.Throttle{"a": other, "b": th} {
			if r := reserve(t, by, throttle.Job{ID: id, Weight: 1}); r.Outcome != throttle.Granted {
				t.Errorf("job %s: got %+v", id, r)
			}
		}
		if reply, err := server.Do(t.Context(), hook.failed...).Result(); err == nil &&
			strings.Contains(fmt.Sprint(reply), "\n1 ") {
			t.Errorf("the late copy was decided: %v", reply)
		}
		if u, b := used(t, server, th.Name(), scopes); u != 3 || b != 0 {
			t.Errorf("%d used and %d booked, want 3 and none", u, b)
		}
	})
}

// TestReserveAllRoundTrips: ReserveAll takes one round trip for each 64 jobs.
func TestReserveAllRoundTrips(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		client, hook := hookedClient(t, server)
		th := newThrottle(t, client, globalScope(throttle.PerHour(1000)), nil)
		reserve(t, th, throttle.Job{ID: "warm", Weight: 1}) // the script is loaded
		hook.calls.Store(0)
		for i, answer := range th.ReserveAll(t.Context(), manyJobs(4*64+1)) {
			if answer.Err != nil || answer.Reservation.Outcome != throttle.Granted {
				t.Fatalf("job %d: %+v", i, answer)
			}
		}
		if n := hook.calls.Load(); n != 5 {
			t.Errorf("%d calls for 257 jobs, want 5", n)
		}
	})
}

// TestReserveAllContextEnds: no jobs are sent once the context has ended, and jobs that may have
// been decided get an error with the nonce to ask again with.
func TestReserveAllContextEnds(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		scopes := globalScope(throttle.PerHour(1000))
		client, hook := hookedClient(t, server)
		th := newThrottle(t, client, scopes, nil)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for i, answer := range th.ReserveAll(ended, manyJobs(250)) {
			if !errors.Is(answer.Err, context.Canceled) {
				t.Errorf("ended before, job %d: got %v", i, answer.Err)
			}
		}
		if u, b := used(t, server, th.Name(), scopes); u+b != 0 {
			t.Errorf("ended before: %d used and %d booked, want none", u, b)
		}
		reserve(t, th, throttle.Job{ID: "warm", Weight: 1})
		th.AwaitPublished() // the hook would count the calls that publish, too
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan struct{})
		hook.answered = func() {
			cancel()
			<-given // the answer comes after the caller has stopped waiting
		}
		jobs := manyJobs(250)
		answers := th.ReserveAll(ctx, jobs)
		asked := 0
		for i, answer := range answers {
			var lost *throttle.UnavailableError
			if !errors.Is(answer.Err, context.Canceled) {
				t.Errorf("ended meanwhile, job %d: got %v", i, answer.Err)
			}
			if errors.As(answer.Err, &lost) && lost.Job == jobs[i].ID && lost.Nonce != "" {
				asked++
				jobs[i].Nonce = lost.Nonce
			}
		}
		if u, _ := used(t, server, th.Name(), scopes); u != 1+64 || asked != 64 {
			t.Errorf("ended meanwhile: %d units used and %d jobs told their nonce, want 65 and 64", u, asked)
		}
		close(given)
		for i, answer := range th.ReserveAll(t.Context(), jobs) {
			if answer.Err != nil || answer.Reservation.Outcome != throttle.Granted {
				t.Errorf("asked again, job %d: got %+v", i, answer)
			}
		}
		if u, _ := used(t, server, th.Name(), scopes); u != 1+250 {
			t.Errorf("asked again: %d units used, want 251", u)
		}
	})
}

// TestReserveAllLoadsTheScript: ReserveAll loads the script if Redis does not know it, at first or
// after SCRIPT FLUSH.
func TestReserveAllLoadsTheScript(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		scopes := globalScope(throttle.PerHour(1000))
		th := newThrottle(t, defaultClient(t, proxy.Addr), scopes, nil)
		for round := range int64(2) {
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			jobs := manyJobs(150)
			for i := range jobs {
				jobs[i].ID = fmt.Sprint(round, jobs[i].ID)
			}
			for i, answer := range th.ReserveAll(t.Context(), jobs) {
				if answer.Err != nil || answer.Reservation.Outcome != throttle.Granted || answer.Reservation.Replayed {
					t.Errorf("job %d: got %+v", i, answer)
				}
			}
			if u, _ := used(t, direct, th.Name(), scopes); u != 150*(round+1) {
				t.Errorf("%d units used, want %d", u, 150*(round+1))
			}
		}
	})
}

// TestReserveAllUnderSetLimits: limits that another process has set in the meantime are in force
// for each of the jobs.
func TestReserveAllUnderSetLimits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := tenantAndGlobal(throttle.PerHour(100), throttle.PerHour(1000))
		th := newThrottle(t, client, scopes, nil)
		other, err := throttle.New(th.Name(), client, scopes, &throttle.Options{Timeout: patient, Lookahead: maxWindow})
		if err != nil {
			t.Fatal(err)
		}
		granted := func(tenant string, from, jobs int) (n int) {
			asked := make([]throttle.Job, jobs)
			for i := range asked {
				asked[i] = throttle.Job{ID: fmt.Sprint(tenant, from+i), Weight: 1, Keys: of(tenant)}
			}
			for i, answer := range th.ReserveAll(t.Context(), asked) {
				if answer.Err != nil {
					t.Fatalf("job %d: %v", i, answer.Err)
				}
				if answer.Reservation.Outcome == throttle.Granted {
					n++
				}
			}
			return n
		}
		if n := granted("a", 0, 20); n != 20 {
			t.Fatalf("%d granted, want 20", n)
		}
		if err := inspect.New(other).SetLimits(t.Context(), "tenant", "a",
			[]throttle.Limit{throttle.PerHour(30)}); err != nil {
			t.Fatal(err)
		}
		if a, b := granted("a", 20, 120), granted("b", 0, 120); a != 10 || b != 100 {
			t.Errorf("lowered for a: %d and %d granted, want 10 and 100", a, b)
		}
		if err := inspect.New(other).SetLimits(t.Context(), "tenant", "",
			[]throttle.Limit{throttle.Per(5, time.Minute)}); err != nil {
			t.Fatal(err)
		}
		if c := granted("c", 0, 110); c != 5 { // of another window, too
			t.Errorf("set for all tenants: %d granted, want 5", c)
		}
		blocked := th.ReserveAll(t.Context(),
			[]throttle.Job{{ID: "1", Weight: 1, Keys: of("d")}, {ID: "9", Weight: 9, Keys: of("d")}})
		var wrong *throttle.BlockedError
		if blocked[0].Err != nil || !errors.As(blocked[1].Err, &wrong) {
			t.Errorf("a job heavier than the limit that was set: got %v and %v", blocked[0].Err, blocked[1].Err)
		}
	})
}

// TestReserveAllWithoutPipeline: a client that only runs scripts is enough.
func TestReserveAllWithoutPipeline(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := globalScope(throttle.PerHour(120))
		th := newThrottle(t, struct{ redis.Scripter }{client}, scopes, nil)
		granted := 0
		for i, answer := range th.ReserveAll(t.Context(), manyJobs(150)) {
			if answer.Err != nil || (answer.Reservation.Outcome == throttle.Granted) != (i < 120) {
				t.Errorf("job %d: got %+v", i, answer)
			}
			granted++
		}
		if u, b := used(t, client, th.Name(), scopes); u != 120 || b != 30 || granted != 150 {
			t.Errorf("%d used and %d booked of %d, want 120 and 30", u, b, granted)
		}
	})
}

// TestReserveAllRedisAway: the fallback answers each job, or the job has an error with the nonce
// to ask again with; the observer gets an event for each job. Once the breaker is open, Redis is not called
// for any of the jobs.
func TestReserveAllRedisAway(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, server *redis.Client) {
		for _, row := range []struct {
			fallback throttle.Fallback
			granted  int
			source   throttle.Fallback
		}{
			{throttle.FallbackClosed, 0, throttle.FallbackClosed},
			{throttle.FallbackOpen, 350, throttle.FallbackOpen},
			{throttle.FallbackLocal, 10, throttle.FallbackLocal},
		} {
			client, hook := hookedClient(t, server)
			observer := new(told)
			th := newThrottle(t, client, globalScope(throttle.PerHour(20)), &throttle.Options{
				Fallback: row.fallback, LocalShare: 1, BreakPeriod: time.Hour, Observer: observer,
			})
			hook.fail.Store(true)
			granted := 0
			jobs := manyJobs(350)
			for i, answer := range th.ReserveAll(t.Context(), jobs) {
				var lost *throttle.UnavailableError
				switch {
				case answer.Err == nil:
					granted++
					if answer.Reservation.Outcome != throttle.Granted || answer.Reservation.Source != row.source {
						t.Errorf("fallback %d, job %d: got %+v", row.fallback, i, answer.Reservation)
					}
				case !errors.As(answer.Err, &lost) || lost.Job != jobs[i].ID || lost.Nonce == "":
					t.Errorf("fallback %d, job %d: got %v, want its own error with a nonce", row.fallback, i, answer.Err)
				}
				if got := observer.decisions[i]; got.Reservation.Job.ID != jobs[i].ID || (got.Err == nil) != (answer.Err == nil) {
					t.Errorf("fallback %d, job %d: the observer was told %+v", row.fallback, i, got)
				}
			}
			if granted != row.granted || len(observer.decisions) != 350 || len(observer.outages) != 350 {
				t.Errorf("fallback %d: %d granted, %d decisions and %d outages told; want %d, 350, 350", row.fallback,
					granted, len(observer.decisions), len(observer.outages), row.granted)
			}
			if n := hook.calls.Load(); n != defaultBreakAfter {
				t.Errorf("fallback %d: %d calls reached for Redis, want %d", row.fallback, n, defaultBreakAfter)
			}
		}
	})
}

// TestF01_ReserveAllCutInTheMiddle: the connection is cut before the answer for some of the
// jobs has come. The client or the caller asks for these jobs again with the same nonces:
// each job is charged once.
func TestF01_ReserveAllCutInTheMiddle(t *testing.T) {
	t.Parallel()
	clients := map[string]func(t testing.TB, addr string) *redis.Client{"once": onceClient, "default": defaultClient}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
				scopes := globalScope(throttle.PerHour(1000))
				th := newThrottle(t, client(t, proxy.Addr), scopes, nil)
				reserve(t, th, throttle.Job{ID: "warm", Weight: 1})
				for n, at := range []int{1, 2} {
					jobs := manyJobs(100) // in two calls
					for i := range jobs {
						jobs[i].ID, jobs[i].Weight = fmt.Sprint(at, "-", i), 3
					}
					proxy.DropReply("evalsha", at)
					lost := again(t, th, jobs)
					if proxy.Dropped() != n+1 || name == "once" && lost != []int{64, 36}[n] || name == "default" && lost != 0 {
						t.Errorf("call %d cut: %d replies lost, %d jobs asked again", at, proxy.Dropped()-n, lost)
					}
					if u, b := used(t, direct, th.Name(), scopes); u != int64(1+300*(n+1)) || b != 0 {
						t.Errorf("call %d cut: %d units used and %d booked, want %d and 0", at, u, b, 1+300*(n+1))
					}
				}
			})
		})
	}
}

// again asks for jobs that must be granted, and once more for the jobs whose answers were lost. It
// returns how many answers were lost.
func again(t *testing.T, th *throttle.Throttle, jobs []throttle.Job) int {
	t.Helper()
	var lost []throttle.Job
	asked := time.Now()
	for i, answer := range th.ReserveAll(t.Context(), jobs) {
		var away *throttle.UnavailableError
		if errors.As(answer.Err, &away) {
			jobs[i].Nonce = away.Nonce
			lost = append(lost, jobs[i])
		} else if answer.Err != nil || answer.Reservation.Outcome != throttle.Granted {
			t.Errorf("job %d: got %+v", i, answer)
		}
	}
	for i, answer := range th.ReserveAll(t.Context(), lost) {
		r := answer.Reservation
		if answer.Err != nil || r.Outcome != throttle.Granted || !r.Replayed && isKept(asked) {
			t.Errorf("job %d, asked again: got %+v; want the grant that was made", i, answer)
		}
	}
	return len(lost)
}

// BenchmarkReserveAll measures one decision of many that are asked for at once.
func BenchmarkReserveAll(b *testing.B) {
	th := benchThrottle(b, roomy)
	jobs := make([]throttle.Job, 100)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		for i := range jobs {
			jobs[i] = benchJob(100*n+i, 1000)
		}
		for _, answer := range th.ReserveAll(b.Context(), jobs) {
			if answer.Err != nil {
				b.Fatal(answer.Err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(100*b.N), "ns/job")
}
