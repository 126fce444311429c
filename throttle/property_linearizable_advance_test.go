package throttle_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestF55_LinearizableWithAdvances: clients with and without advances on one throttle, by Redis' own clock, until its
// windows are full. The answers are those that the model gives in some order, where each advance is one more grant of
// its units, and a start without a call takes from what its own client has charged and not started, before it ends. The
// starts alone show no window over its limit.
func TestF55_LinearizableWithAdvances(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, _ *redis.Client) {
		proxy.Delay(time.Millisecond / 2) // so that the calls meet
		advanced, waiting, histories := 0, 0, longtest.Of[uint64](1, 10)
		for seed := uint64(0); seed < histories || seed < 4*histories && advanced*waiting == 0; seed++ {
			h := advancedHistory{t: t, scopes: tenantAndGlobal(throttle.Per(900, 30*time.Second),
				throttle.Per(1300, 30*time.Second))}
			name := "t" + nameOf(t)
			var clients sync.WaitGroup
			for id := range 4 {
				options := throttle.Options{Timeout: patient, BreakAfter: -1}
				if id > 0 {
					options.Advance = []time.Duration{time.Second, 100 * time.Millisecond}[id%2]
				}
				th, err := throttle.New(name, onceClient(t, proxy.Addr), h.scopes, &options)
				if err != nil {
					t.Fatal(err)
				}
				random := rand.New(rand.NewPCG(seed, uint64(id)))
				clients.Go(func() { h.contend(id, th, options.Advance, random) })
			}
			clients.Wait()
			h.check(seed)
			for _, o := range h.history {
				if told, is := o.Output.(advancedAnswer); is && told.reservation.Advanced {
					advanced++
				} else if is && told.reservation.Outcome == throttle.Waiting {
					waiting++
				}
			}
		}
		t.Logf("%d starts out of advances, %d answers that a job waits", advanced, waiting)
		if advanced*waiting == 0 {
			t.Errorf("NOT TESTED: want both starts out of advances and full windows")
		}
	})
}

// advancedHistory is what the clients of one throttle asked and were answered.
type advancedHistory struct {
	t      *testing.T
	scopes []throttle.Scope
	ticks  atomic.Int64

	mu      sync.Mutex
	history []porcupine.Operation
}

// advancedQuestion is a call of Reserve; without a job one of Usage.
type advancedQuestion struct {
	client int
	job    throttle.Job
	lasts  time.Duration // throttle.Options.Advance of the client
}

type advancedAnswer struct {
	reservation throttle.Reservation
	usage       inspect.Usage
	units       int64 // of the advance that the answer brought
	ends        time.Time
}

// contend makes calls, one after the other.
func (h *advancedHistory) contend(client int, th *throttle.Throttle, lasts time.Duration, random *rand.Rand) {
	for i := range 200 {
		asked := advancedQuestion{client: client, lasts: lasts}
		var told advancedAnswer
		var err error
		called := h.ticks.Add(1)
		if random.IntN(20) == 0 {
			told.usage, err = inspect.New(th).Usage(h.t.Context(), throttle.Global, "")
		} else {
			asked.job = throttle.Job{ID: fmt.Sprintf("j%d-%d", client, i), Weight: 1 + random.Int64N(3),
				Keys: of([]string{"a", "a", "b"}[random.IntN(3)])}
			answer := th.ReserveAll(h.t.Context(), []throttle.Job{asked.job})[0]
			told.reservation, err = answer.Reservation, answer.Err
			told.units, told.ends = answer.Advance()
		}
		returned := h.ticks.Add(1)
		if err != nil {
			h.t.Error(err)
			return
		}
		h.mu.Lock()
		h.history = append(h.history, porcupine.Operation{ClientId: client, Input: asked, Call: called, Output: told,
			Return: returned})
		h.mu.Unlock()
	}
}

// check checks that the history has an order, and the windows of its starts.
func (h *advancedHistory) check(seed uint64) {
	h.t.Helper()
	result, info := porcupine.CheckOperationsVerbose(porcupine.Model{
		Init: func() any {
			return advancedState{model: throttletest.NewModel(h.scopes, throttle.Options{})}
		},
		Step: h.step,
		Equal: func(one, other any) bool {
			first, is := one.(advancedState)
			second, isToo := other.(advancedState)
			return is && isToo && first.now.Equal(second.now) && maps.Equal(first.left, second.left) &&
				first.model.Equal(second.model)
		},
	}, h.history, patient)
	if result != porcupine.Ok {
		longest := 0
		for _, orders := range info.PartialLinearizationsOperations() {
			for _, order := range orders {
				longest = max(longest, len(order))
			}
		}
		h.t.Errorf("seed %d: the history is %s, %d of %d calls can be put in order", seed, result, longest, len(h.history))
	}
	var starts []throttletest.Start
	for _, o := range h.history {
		if told, is := o.Output.(advancedAnswer); is && told.reservation.Outcome == throttle.Granted {
			r := told.reservation
			starts = append(starts, throttletest.Start{At: r.Start, Weight: r.Job.Weight, Keys: r.Job.Keys})
		}
	}
	for _, over := range throttletest.Check(h.scopes, starts) {
		h.t.Errorf("seed %d: window over its limit: %s", seed, over)
	}
}

// advancedState is the state between two calls: that of the model, and what each client has left of its advances.
type advancedState struct {
	model *throttletest.Model
	now   time.Time // of the last call, by Redis' clock
	left  map[advancedLane]leftOfAdvance
}

// advancedLane is a lane of one client.
type advancedLane struct {
	client int
	lane   string
}

// leftOfAdvance is what a client may still start of a lane.
type leftOfAdvance struct {
	units         int64
	charged, ends int64 // us
}

// step reports whether a call can be the next, and returns the state after it.
func (h *advancedHistory) step(before, input, output any) (bool, any) {
	at, isState := before.(advancedState)
	asked, isQuestion := input.(advancedQuestion)
	told, isAnswer := output.(advancedAnswer)
	if !isState || !isQuestion || !isAnswer {
		return false, before
	}
	after := advancedState{model: at.model, now: at.now, left: maps.Clone(at.left)}
	if after.left == nil {
		after.left = map[advancedLane]leftOfAdvance{}
	}
	if told.reservation.Advanced {
		fits := after.start(asked, told.reservation)
		return fits, after
	}
	after.now, after.model = told.usage.Now, at.model.Clone()
	if asked.job.ID != "" {
		after.now = told.reservation.Now
	}
	if after.now.Before(at.now) {
		return false, before
	}
	if asked.job.ID == "" {
		usage, err := after.model.Usage(after.now, throttle.Global, "")
		return err == nil && answer{value: told.usage}.equals(answer{value: usage}), after
	}
	want, err := after.model.Reserve(after.now, asked.job)
	fits := err == nil && answer{value: told.reservation}.equals(answer{value: want}) && after.charge(asked, told)
	return fits, after
}

// start starts a job out of what its client has left.
func (s *advancedState) start(asked advancedQuestion, r throttle.Reservation) bool {
	lane := advancedLane{asked.client, r.Lane}
	left := s.left[lane]
	at := r.Start.UnixMicro()
	fits := left.units >= asked.job.Weight && left.charged == r.Now.UnixMicro() && left.charged <= at && at < left.ends
	left.units -= asked.job.Weight
	s.left[lane] = left
	return fits && r.Outcome == throttle.Granted
}

// charge charges the advance of an answer: like one more job of its units, which are at most a tenth of what each limit
// has left.
func (s *advancedState) charge(asked advancedQuestion, told advancedAnswer) bool {
	lane := advancedLane{asked.client, told.reservation.Lane}
	if told.reservation.Outcome != throttle.Granted {
		s.left[lane] = leftOfAdvance{}
	}
	if told.units == 0 {
		return true
	}
	for _, of := range [][2]string{{throttle.Global, ""}, {"tenant", asked.job.Keys["tenant"]}} {
		usage, err := s.model.Usage(s.now, of[0], of[1])
		if err != nil || 10*told.units > usage.Limits[0].Limit.Units-usage.Limits[0].Used {
			return false
		}
	}
	ends := min(told.ends.UnixMicro(), s.now.Add(asked.lasts).UnixMicro())
	left := s.left[lane]
	if left.units == 0 || left.ends != ends {
		left = leftOfAdvance{charged: s.now.UnixMicro(), ends: ends}
	}
	left.units += told.units
	s.left[lane] = left
	more := throttle.Job{ID: "the advance of " + asked.job.ID, Weight: told.units, Keys: asked.job.Keys}
	r, err := s.model.Reserve(s.now, more)
	return err == nil && r.Outcome == throttle.Granted && r.Start.Equal(s.now) && asked.lasts > 0
}
