package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// endings is a throttle that records the jobs that have ended.
type endings struct {
	dueDouble
	calls []string // "pull" or "done", and how many jobs had ended
	ended []string
}

func (e *endings) end(call string, ended []throttle.Reservation) {
	time.Sleep(e.takes)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, fmt.Sprint(call, " ", len(ended)))
	for _, r := range ended {
		e.ended = append(e.ended, r.Job.ID)
	}
}

// Pull implements driver.
func (e *endings) Pull(_ context.Context, ended ...throttle.Reservation) (throttle.Pulled, error) {
	e.end("pull", ended)
	if e.fails {
		return throttle.Pulled{}, errDouble
	}
	return throttle.Pulled{}, nil
}

// Done implements decider.
func (e *endings) Done(_ context.Context, ended ...throttle.Reservation) ([]bool, error) {
	e.end("done", ended)
	return make([]bool, len(ended)), nil
}

// TestHandOver: places are given back in the call that pulls the line. The places of tasks that end
// while a call is under way go together in the next call, each once. If no task waits, or the
// shaper has stopped, nothing is pulled. After an error all places of the call are left to the
// runner.
func TestHandOver(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		waits, stopped, fails bool
		want                  []string
	}{
		"somebody waits":          {waits: true, want: []string{"pull 1", "pull 2", "pull 2"}},
		"nobody waits":            {want: []string{"done 1", "done 2", "done 2"}},
		"the shaper has stopped":  {waits: true, stopped: true, want: []string{"done 1", "done 2", "done 2"}},
		"the line cannot be read": {waits: true, fails: true, want: []string{"pull 1", "pull 2", "pull 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				line := &endings{dueDouble: dueDouble{takes: 10 * time.Millisecond, fails: row.fails}}
				s := &Shaper{throttle: line, looks: line, driver: line, log: zap.NewNop(), stopped: make(chan struct{})}
				s.puller, s.runner = newPuller(s), newRunner(s)
				s.runner.started = true // what it is left with is looked at here
				if row.waits {
					line.due = time.Now().Add(time.Minute)
				}
				if row.stopped {
					close(s.stopped)
				}
				var all sync.WaitGroup
				var ids []string
				for i := range 5 { // at 0, 4, 8, 12 and 16 ms; a call takes ten
					id := fmt.Sprint(i)
					ids = append(ids, id)
					all.Go(func() {
						time.Sleep(time.Duration(4*i) * time.Millisecond)
						<-s.puller.handOver(&run{granted: throttle.Reservation{Job: throttle.Job{ID: id}}, over: true})
					})
				}
				all.Wait()
				left := 0
				if row.fails {
					left = len(ids)
				}
				if got := len(s.runner.runs); got != left {
					t.Errorf("%d are left to the runner, want %d", got, left)
				}
				if slices.Sort(line.ended); !slices.Equal(line.calls, row.want) || !slices.Equal(line.ended, ids) {
					t.Errorf("calls %v of %v, want %v of each once", line.calls, line.ended, row.want)
				}
			})
		})
	}
}

// TestClosedClientGivesNothingBack: places that a closed client could not give back are not tried
// again, so that a stopped program has no goroutine left until the lease is over.
func TestClosedClientGivesNothingBack(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		left int
	}{
		"the client is closed": {&throttle.UnavailableError{Err: redis.ErrClosed}, 0},
		"Redis is away":        {errDouble, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newRunner(&Shaper{})
			n.started = true // what it is left with is looked at here
			n.again([]*run{{over: true, until: time.Now().Add(time.Minute)}}, row.err)
			if got := len(n.runs); got != row.left {
				t.Errorf("%d are left to the runner, want %d", got, row.left)
			}
		})
	}
}

// TestRunOutlivesItsLease: a task whose process stood still for longer than its lease is counted
// and logged even if its handler returns as soon as the process goes on, and even if the monotonic
// clock stood still too. A task that ends in time is not.
func TestRunOutlivesItsLease(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	for name, row := range map[string]struct {
		stood time.Duration // since the task was asked for
		wall  time.Duration // the wall clock alone was ahead
		want  int64
	}{
		"in time":       {stood: lease / 2},
		"stopped":       {stood: 4 * lease, want: 1},
		"suspended":     {wall: 4 * lease, want: 1},
		"told just now": {stood: lease - lease/20, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				line := &endings{}
				s := &Shaper{throttle: line, looks: line, driver: line, log: zap.New(core), stopped: make(chan struct{})}
				s.puller, s.runner = newPuller(s), newRunner(s)
				s.runner.started = true // nothing is renewed while the process stands still
				r := throttle.Reservation{Job: throttle.Job{ID: "job"}, Lease: lease}
				_, place := s.runner.begin(t.Context(), r, time.Now().Add(-row.stood))
				if row.wall > 0 {
					place.until = place.until.Round(0).Add(-row.wall)
				}
				synctest.Wait()
				s.runner.end(t.Context(), place, r)
				synctest.Wait()
				if got := s.stats.lost.Load(); got != row.want || int64(logs.Len()) != row.want {
					t.Errorf("%d are lost and %d told of, want %d", got, logs.Len(), row.want)
				}
			})
		})
	}
}

// TestRunnerEndsWithTheLastTask: the goroutine that renews leases ends when the last task has ended
// after Stop, and not only when the task's lease would have been renewed.
func TestRunnerEndsWithTheLastTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := &endings{}
		s := &Shaper{throttle: line, looks: line, driver: line, log: zap.NewNop(), stopped: make(chan struct{})}
		s.puller, s.runner = newPuller(s), newRunner(s)
		granted := throttle.Reservation{Job: throttle.Job{ID: "last"}, Lease: time.Minute}
		ctx, r := s.runner.begin(t.Context(), granted, time.Now())
		close(s.stopped)
		s.runner.stop()
		synctest.Wait()
		s.runner.end(ctx, r, granted)
		synctest.Wait()
		s.runner.mu.Lock()
		defer s.runner.mu.Unlock()
		if s.runner.started {
			t.Error("the goroutine goes on, want it ended")
		}
	})
}
