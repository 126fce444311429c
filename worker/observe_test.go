package worker_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// told keeps the events that a worker reports to the throttle's observer.
type told struct {
	mu       sync.Mutex
	starts   []throttle.Lateness
	putBacks []throttle.PutBack
	endings  []throttle.Ending
}

func (o *told) Started(l throttle.Lateness) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.starts = append(o.starts, l)
}

func (o *told) PutBack(p throttle.PutBack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.putBacks = append(o.putBacks, p)
}

func (o *told) Ended(e throttle.Ending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endings = append(o.endings, e)
}

func (o *told) Decided(throttle.Decision)   {}
func (o *told) FellBack(throttle.Outage)    {}
func (o *told) Called(throttle.ScriptCall)  {}
func (o *told) Settled(throttle.Settlement) {}
func (o *told) Paused(throttle.Pause)       {}
func (o *told) Adapted(throttle.Adaptation) {}

// TestObserverIsToldOfStartsAndPutBacks: the observer gets as many starts and put-backs as
// Stats counts; in virtual time no start is late.
func TestObserverIsToldOfStartsAndPutBacks(t *testing.T) {
	t.Parallel()
	observer := new(told)
	inBubbleWith(t, perTenant(5, time.Second), &throttle.Options{Observer: observer}, func(t *testing.T, w *world) {
		const tasks = 20
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.serve(asynq.Config{Concurrency: 10})
		w.drained(tasks, time.Minute)
		stats := w.shaper.Stats()
		observer.mu.Lock()
		defer observer.mu.Unlock()
		if len(observer.starts) != tasks || int64(len(observer.putBacks)) != stats.PutBack || stats.PutBack == 0 {
			t.Errorf("told of %d starts and %d put-backs, want %d and %d", len(observer.starts),
				len(observer.putBacks), tasks, stats.PutBack)
		}
		for _, s := range observer.starts {
			if s.Throttle != "world" || s.Reservation.Outcome != throttle.Granted || s.Late < 0 || s.Late > time.Microsecond {
				t.Errorf("told of the start %+v", s)
			}
		}
		for _, p := range observer.putBacks {
			if p.Throttle != "world" || p.Reservation.Outcome == throttle.Granted ||
				p.Reservation.Job.Keys["tenant"] != "acme" || p.Delay <= 0 || p.Err != nil {
				t.Errorf("told of the put-back %+v", p)
			}
		}
	})
}

// TestObserverIsToldWhyItIsPutBack: if Redis cannot decide, the event of the put-back says so.
func TestObserverIsToldWhyItIsPutBack(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		wire, observer := newWire(w), new(told)
		th, err := throttle.New("cut-off", wire.client, w.scopes, &throttle.Options{Observer: observer})
		if err != nil {
			t.Fatal(err)
		}
		shaper, err := worker.New(th, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(shaper.Stop)
		wire.cut()
		w.enqueue(1, "acme", 1)
		w.serveWith(shaper, asynq.Config{Concurrency: 1})
		w.until("it is put back", time.Minute, func() bool { return shaper.Stats().PutBack == 1 })
		wire.mend()
		w.drained(1, time.Minute)
		observer.mu.Lock()
		defer observer.mu.Unlock()
		first := observer.putBacks[0]
		if first.Throttle != "cut-off" || first.Reservation.Job.ID == "" || first.Delay < worker.DefaultBackoff ||
			!errors.Is(first.Err, throttle.ErrUnavailable) {
			t.Errorf("told of the put-back %+v", first)
		}
	})
}
