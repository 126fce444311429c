package throttle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

// TestBatchGathers: jobs that come while a call is under way go with the next, 64 at most.
func TestBatchGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newFake()
		client.hang = make(chan struct{})
		th := fakeThrottle(t, client, Options{})
		var wg sync.WaitGroup
		reserve := func(id string) {
			r, err := th.Reserve(t.Context(), fakeJob(id))
			if err != nil || r.Outcome != Granted || r.Job.ID != id {
				t.Errorf("job %s: %+v, %v", id, r, err)
			}
		}
		wg.Go(func() { reserve("first") })
		synctest.Wait()
		for i := range 70 {
			wg.Go(func() { reserve(strconv.Itoa(i)) })
		}
		synctest.Wait()
		close(client.hang)
		wg.Wait()
		want := []int{1, 64, 6}
		if len(client.calls) != len(want) {
			t.Fatalf("%d calls, want %d", len(client.calls), len(want))
		}
		for i, c := range client.calls {
			if got := (len(c.args) - 5) / 3; got != want[i] {
				t.Errorf("call %d has %d jobs, want %d", i, got, want[i])
			}
		}
	})
}

// TestBatchWaitsForOthers: several callers ask shortly after each other, each again a while after
// its answer. Most of their jobs are sent together. A caller that asks alone never waits.
func TestBatchWaitsForOthers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name             string
		callers, atLeast int           // jobs in a call
		longest          time.Duration // beside the call, and the one under way
	}{
		{"one", 1, 1, 0},
		{"a few", 4, 4, gatherFor},
		{"many", 20, enoughAtOnce, gatherFor},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := newFake()
				client.takes = 200 * time.Microsecond
				th := fakeThrottle(t, client, Options{})
				var wg sync.WaitGroup
				for caller := range row.callers {
					wg.Go(func() {
						for i := range 50 {
							time.Sleep(time.Duration(caller) * 50 * time.Microsecond)
							began := time.Now()
							if _, err := th.Reserve(t.Context(), fakeJob(fmt.Sprintf("%d-%d", caller, i))); err != nil {
								t.Error(err)
							}
							if took := time.Since(began); took > row.longest+2*client.takes {
								t.Errorf("caller %d waited %s, want %s at most", caller, took, row.longest+2*client.takes)
							}
						}
					})
				}
				wg.Wait()
				jobs, half := 0, client.calls[len(client.calls)/2:]
				for _, c := range half {
					jobs += (len(c.args) - 5) / 3
				}
				if got := float64(jobs) / float64(len(half)); got < float64(row.atLeast)*0.8 {
					t.Errorf("%.1f jobs in a call, want %d", got, row.atLeast)
				}
			})
		})
	}
}

// TestBatchOfMany: ReserveAll sends 64 at once, and every job has its own answer.
func TestBatchOfMany(t *testing.T) {
	t.Parallel()
	client := newFake()
	th := fakeThrottle(t, client, Options{})
	jobs := make([]Job, 130)
	for i := range jobs {
		jobs[i] = fakeJob(strconv.Itoa(i))
	}
	jobs[5].Weight = 0
	for i, answer := range th.ReserveAll(t.Context(), jobs) {
		if wrong := answer.Err != nil; wrong != (i == 5) || !wrong && answer.Reservation.Job.ID != strconv.Itoa(i) {
			t.Errorf("job %d: %+v", i, answer)
		}
	}
	if got := len(client.askings()); got != 3 {
		t.Errorf("%d calls, want 3", got)
	}
}

// TestCallersDeadline: the end of a caller's own context says nothing about Redis. The breaker
// does not count it, no fallback answers, and the call goes on for the other callers.
func TestCallersDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newFake()
		client.hang = make(chan struct{})
		th := fakeThrottle(t, client, Options{Fallback: FallbackOpen, BreakAfter: 1})
		var patient Reservation
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		wg.Go(func() {
			_, err := th.Reserve(ctx, fakeJob("hasty"))
			var unavailable *UnavailableError
			if !errors.As(err, &unavailable) || unavailable.Failure != failureTimeout || unavailable.Nonce == "" ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want a timeout with a nonce", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { patient, _ = th.Reserve(t.Context(), fakeJob("patient")) })
		time.Sleep(30 * time.Millisecond)
		client.set(func() { close(client.hang); client.hang = nil })
		wg.Wait()
		if patient.Outcome != Granted || patient.Source != FallbackClosed {
			t.Errorf("the patient caller got %+v", patient)
		}
		if s := th.redis.breaker.State(); s != gobreaker.StateClosed {
			t.Errorf("the breaker is %s", s)
		}
		if _, err := th.Peek(t.Context(), fakeJob("x")); err != nil {
			t.Error(err)
		}
	})
}

// TestCallersDeadlineAlone: the same holds for a call with the jobs of one caller only.
func TestCallersDeadlineAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newFake()
		client.hang = make(chan struct{})
		th := fakeThrottle(t, client, Options{BreakAfter: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := th.Peek(ctx, fakeJob("a")); !errors.Is(err, ErrUnavailable) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if s := th.redis.breaker.State(); s != gobreaker.StateClosed {
			t.Errorf("the breaker is %s", s)
		}
		if _, err := th.Peek(t.Context(), fakeJob("a")); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if s := th.redis.breaker.State(); s != gobreaker.StateOpen {
			t.Errorf("the breaker is %s after Redis did not answer", s)
		}
	})
}

// lostGrant returns a job a whose grant was not answered, with the nonce to ask again with.
func lostGrant(t *testing.T) (*fakeRedis, *Throttle, Job) {
	t.Helper()
	client := newFake()
	client.lose = true
	th, job := fakeThrottle(t, client, Options{}), fakeJob("a")
	_, err := th.Reserve(t.Context(), job)
	var lost *UnavailableError
	if !errors.As(err, &lost) || lost.Nonce == "" || lost.Job != "a" {
		t.Fatalf("got %v", err)
	}
	client.set(func() { client.lose = false })
	job.Nonce = lost.Nonce
	return client, th, job
}

// TestLostAnswer: a call that was not answered is sent again before any other, and a caller that
// asks again with the nonce gets the grant that was charged.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, th, job := lostGrant(t)
		time.Sleep(300 * time.Millisecond)
		r, err := th.Reserve(t.Context(), job)
		if err != nil || r.Outcome != Granted || !r.Replayed {
			t.Fatalf("got %+v, %v; want the grant", r, err)
		}
		if client.charged["a"] != 1 {
			t.Errorf("charged %d times", client.charged["a"])
		}
		if got := client.askings(); len(got) != 2 || got[0] != got[1] {
			t.Errorf("askings %v, want the same twice", got)
		}
	})
}

// TestLostAnswerTooLate: a grant that no caller could use within a second of its start is given
// back, and the job decided anew.
func TestLostAnswerTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, th, job := lostGrant(t)
		time.Sleep(2 * time.Second)
		r, err := th.Reserve(t.Context(), job)
		if err != nil || r.Outcome != Granted || r.Replayed || r.Start.Before(time.Now()) {
			t.Fatalf("got %+v, %v; want a new grant", r, err)
		}
		if client.charged["a"] != 2 || len(client.settled) != 1 || client.settled[0] != "a" {
			t.Errorf("charged %d times, settled %v", client.charged["a"], client.settled)
		}
	})
}

// TestLostGrantHasItsOwnKeys: the caller has used the maps of the job for other jobs since. The
// grant is given back to the keys that were charged.
func TestLostGrantHasItsOwnKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newFake()
		client.lose = true
		th := fakeThrottle(t, client, Options{})
		job := fakeJob("a")
		job.Costs = map[string]int64{"tenant": 7}
		if _, err := th.Reserve(t.Context(), job); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		client.set(func() { client.lose = false })
		job.Keys["tenant"], job.Costs["tenant"] = "globex", 1
		for _, id := range []string{"b", "c", "d"} { // what was lost is known, then late, and given back
			job.ID = id
			if _, err := th.Reserve(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			time.Sleep(th.options.Grace + time.Second)
		}
		var calls []fakeCall
		client.set(func() { calls = slices.Clone(client.calls) })
		i := slices.IndexFunc(calls, func(c fakeCall) bool { return c.script == "settle" })
		if i < 0 {
			t.Fatal("nothing was given back")
		}
		if args := calls[i].args; args[3] != "a" || !strings.Contains(args[4], "tenant:acme") || args[5] != "1,7" {
			t.Errorf("given back: %q", args)
		}
	})
}

// TestForgottenGrantsAreGivenBack: grants that no caller has asked for until their grace is over
// are given back, and callers do not wait for that; a refund that was not done, or whose answer
// was lost, is sent again after the next answer.
func TestForgottenGrantsAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lost = 3*givenBackAtOnce + 5
		client := newFake()
		client.lose = true
		th := fakeThrottle(t, client, Options{BreakAfter: -1})
		jobs := make([]Job, lost)
		for i := range jobs {
			jobs[i] = fakeJob(strconv.Itoa(i))
		}
		for _, answer := range th.ReserveAll(t.Context(), jobs) {
			if !errors.Is(answer.Err, ErrUnavailable) {
				t.Fatalf("got %+v, want no answer", answer)
			}
		}
		asks := 0
		reserve := func() {
			t.Helper()
			asks++
			began := time.Now()
			if r, err := th.Reserve(t.Context(), fakeJob("other"+strconv.Itoa(asks))); err != nil || r.Outcome != Granted {
				t.Fatalf("got %+v, %v", r, err)
			}
			if took := time.Since(began); took > 3*client.takes { // the call whose answer was lost may go before
				t.Errorf("it took %s, of which a call takes %s", took, client.takes)
			}
			synctest.Wait()
		}
		client.set(func() { client.lose, client.takes = false, 10*time.Millisecond })
		reserve() // after it is known what was granted
		if given := client.givenBack(); len(given) != 0 {
			t.Fatalf("%v were given back too soon", given)
		}
		time.Sleep(th.options.Grace + time.Second)
		client.set(func() {
			client.failing = map[string]error{"settle": redisError("LOADING Redis is loading the dataset in memory")}
		})
		reserve() // which finds the grants forgotten
		time.Sleep(time.Second)
		if given := client.givenBack(); len(given) != 0 {
			t.Fatalf("%v were given back by calls that failed", given)
		}
		client.set(func() { client.failing, client.losing = nil, "settle" })
		reserve()
		time.Sleep(time.Second)
		client.set(func() { client.losing = "" })
		reserve()
		reserve() // meanwhile
		time.Sleep(time.Second)
		refunded, given := make(map[string]int), client.givenBack()
		for _, job := range given {
			refunded[job]++
		}
		for _, job := range jobs {
			if refunded[job.ID] == 0 {
				t.Errorf("job %s was not given back", job.ID)
			}
		}
		if len(refunded) != lost || len(given) != lost+givenBackAtOnce { // of which the answers were lost
			t.Errorf("%d refunds of %d jobs, want %d and %d", len(given), len(refunded), lost+givenBackAtOnce, lost)
		}
	})
}

// TestLateGrantsHoldUpNobody: a second without answers leaves more grants without a caller than can
// be given back in the time of a call. All later callers are answered in time, even if they ask
// again for the same jobs.
func TestLateGrantsHoldUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newFake()
		client.takes = 20 * time.Millisecond
		th := fakeThrottle(t, client, Options{BreakAfter: -1})
		var asked, failed atomic.Int64
		ends := time.Now().Add(time.Minute)
		ask := func(again bool) {
			for time.Now().Before(ends) {
				job := fakeJob(strconv.FormatInt(asked.Add(1), 10))
				_, err := th.Reserve(t.Context(), job)
				for lost := new(UnavailableError); again && errors.As(err, &lost); _, err = th.Reserve(t.Context(), job) {
					failed.Add(1)
					job.Nonce = lost.Nonce
					time.Sleep(keptUsable + 200*time.Millisecond)
				}
				if err != nil {
					failed.Add(1)
				}
				time.Sleep(200 * time.Millisecond)
			}
		}
		for i := range 300 {
			go ask(i%2 == 0)
		}
		time.Sleep(3 * time.Second)
		client.set(func() { client.lose = true })
		time.Sleep(time.Second)
		client.set(func() { client.lose = false })
		time.Sleep(time.Second)
		if failed.Swap(0) == 0 {
			t.Fatal("nothing was lost")
		}
		time.Sleep(time.Minute)
		if n := failed.Load(); n > 0 {
			t.Errorf("%d of %d fail after Redis answers again", n, asked.Load())
		}
		th.batch.mu.Lock()
		late := len(th.batch.late)
		th.batch.mu.Unlock()
		if given := len(client.givenBack()); late > 0 || given == 0 {
			t.Errorf("%d grants are not given back, %d are", late, given)
		}
	})
}

// TestCancelAgain: a lost grant that could not be cancelled while Redis was away is cancelled by
// the next Cancel.
func TestCancelAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newFake()
		client.lose = true
		th := fakeThrottle(t, client, Options{BreakAfter: -1})
		job := fakeJob("a")
		job.Nonce = "n"
		if _, err := th.Reserve(t.Context(), job); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		client.set(func() { client.lose = false })
		if _, err := th.Reserve(t.Context(), fakeJob("b")); err != nil { // which finds out what was granted
			t.Fatal(err)
		}
		client.set(func() { client.fail = io.EOF })
		if done, err := th.Cancel(t.Context(), job); done || !errors.Is(err, ErrUnavailable) {
			t.Fatalf("got %t, %v while Redis is away", done, err)
		}
		client.set(func() { client.fail = nil })
		if done, err := th.Cancel(t.Context(), job); !done || err != nil || !slices.Equal(client.givenBack(), []string{"a"}) {
			t.Errorf("got %t, %v, given back %v", done, err, client.givenBack())
		}
	})
}

// TestUnresolvedKeepsOthersFromAsking: as long as a call is not answered, no new jobs are sent, and
// jobs that were not decided then are not charged.
func TestUnresolvedKeepsOthersFromAsking(t *testing.T) {
	t.Parallel()
	client := newFake()
	th := fakeThrottle(t, client, Options{BreakAfter: -1})
	client.set(func() { client.fail = io.EOF })
	for _, id := range []string{"a", "b", "c"} {
		if _, err := th.Reserve(t.Context(), fakeJob(id)); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("job %s: %v", id, err)
		}
	}
	client.set(func() { client.fail = nil })
	if _, err := th.Reserve(t.Context(), fakeJob("d")); err != nil {
		t.Fatal(err)
	}
	if got := client.askings(); len(got) != 2 || got[0] != "1" || got[1] != "2" {
		t.Errorf("askings %v, want 1 and 2", got)
	}
	if client.charged["a"]+client.charged["b"]+client.charged["c"] != 0 || client.charged["d"] != 1 {
		t.Errorf("charged %v", client.charged)
	}
}

// TestRefusalIsAnAnswer: an error that Redis itself gives resolves the call.
func TestRefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	client := newFake()
	th := fakeThrottle(t, client, Options{BreakAfter: -1})
	client.set(func() { client.fail = redisError("OOM command not allowed") })
	_, err := th.Reserve(t.Context(), fakeJob("a"))
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Failure != failureMemory {
		t.Fatalf("got %v", err)
	}
	client.set(func() { client.fail = nil })
	if _, err := th.Reserve(t.Context(), fakeJob("b")); err != nil {
		t.Fatal(err)
	}
	if client.charged["a"] != 0 {
		t.Error("a job was charged whose call was refused")
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// TestLateGrantOfAFallback: of two jobs whose decision came too late, a local share has started one. The grant of the
// other one is given back, so that it is not charged twice when it comes again.
func TestLateGrantOfAFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newFake()
		client.lose = true
		th := fakeThrottle(t, client, Options{Fallback: FallbackLocal, LocalShare: 0.02}) // one unit of a tenant at once
		answers := th.ReserveAll(t.Context(), []Job{fakeJob("started"), fakeJob("put back")})
		if answers[0].Err != nil || answers[0].Reservation.Source != FallbackLocal || answers[1].Err == nil {
			t.Fatalf("got %+v, want the first one started by the local share", answers)
		}
		client.set(func() { client.lose = false })
		for _, id := range []string{"b", "c"} { // what was lost is known, then late
			if _, err := th.Reserve(t.Context(), fakeJob(id)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(th.options.Grace + time.Second)
		}
		if given := client.givenBack(); !slices.Equal(given, []string{"put back"}) {
			t.Errorf("given back: %q", given)
		}
	})
}

// TestKeptGrantKeepsItsDelay: a grant that is handed out later has only the rest of its delay.
func TestKeptGrantKeepsItsDelay(t *testing.T) {
	t.Parallel()
	kept, sent := make(keptGrants), time.Unix(1_800_000_000, 0)
	now := time.Unix(1_900_000_000, 0) // on Redis' clock
	came := sent.Add(time.Second)
	grant := Reservation{Job: Job{Nonce: "n"}, Outcome: Granted, Now: now, Start: now.Add(3 * time.Second)}
	kept.put(new(order), grant, sent, came, time.Minute)
	r, age := kept.take("n", came.Add(time.Second))
	if age != keptFresh || r.Delay() != 2*time.Second || !r.Replayed {
		t.Errorf("age %d, delay %s, replayed %t", age, r.Delay(), r.Replayed)
	}
	kept.put(new(order), grant, sent, came, time.Minute)
	if _, age := kept.take("n", sent.Add(4*time.Second+1)); age != keptLate {
		t.Errorf("age %d a second after the start, want late", age)
	}
	kept.put(new(order), grant, sent, came, time.Minute)
	kept.forget(came.Add(2 * time.Minute))
	if _, age := kept.take("n", sent); age != keptNone {
		t.Errorf("age %d after it was forgotten", age)
	}
}

// TestKeptGrantUnderALeaseIsYoung: Redis counts the lease of a kept grant from the decision, its process only from the
// reply. So the grant is given back when it has lost more of its lease than the margin with which handlers end.
func TestKeptGrantUnderALeaseIsYoung(t *testing.T) {
	t.Parallel()
	sent := time.Unix(1_800_000_000, 0)
	for _, row := range []struct{ lease, usable time.Duration }{
		{400 * time.Millisecond, 40 * time.Millisecond}, {DefaultLease, time.Second},
	} {
		kept := make(keptGrants)
		grant := Reservation{Job: Job{Nonce: "n"}, Outcome: Granted, Lease: row.lease, Now: sent, Start: sent.Add(row.lease)}
		for age, want := range map[time.Duration]keptAge{row.usable: keptFresh, row.usable + 1: keptLate} {
			kept.put(new(order), grant, sent, sent, time.Minute)
			if _, got := kept.take("n", sent.Add(age)); got != want {
				t.Errorf("lease %s, %s after the call was sent: age %d, want %d", row.lease, age, got, want)
			}
		}
	}
}

// TestCancelGivesALostGrantBack: Cancel with the nonce refunds the grant of a caller that had gone.
func TestCancelGivesALostGrantBack(t *testing.T) {
	t.Parallel()
	client, th, job := lostGrant(t)
	if _, err := th.Reserve(t.Context(), fakeJob("b")); err != nil { // the first is resolved before it
		t.Fatal(err)
	}
	if back, err := th.Cancel(t.Context(), job); err != nil || !back || len(client.settled) != 1 {
		t.Errorf("got %t, %v, settled %v", back, err, client.settled)
	}
}

// TestPlanTakesNoLostGrant: a job that is only planned does not get the grant of its nonce whose answer was lost.
func TestPlanTakesNoLostGrant(t *testing.T) {
	t.Parallel()
	_, th, job := lostGrant(t)
	if _, err := th.Reserve(t.Context(), fakeJob("b")); err != nil { // the first is resolved before it
		t.Fatal(err)
	}
	plan := job
	plan.Plan = true
	if r, err := th.Reserve(t.Context(), plan); err != nil || r.Replayed {
		t.Errorf("the plan got %+v, %v", r, err)
	}
	if r, err := th.Reserve(t.Context(), job); err != nil || !r.Replayed {
		t.Errorf("the job got %+v, %v; want its lost grant", r, err)
	}
}
