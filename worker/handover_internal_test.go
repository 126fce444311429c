package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// endings is a throttle that is told of jobs that have ended.
type endings struct {
	dueDouble
	calls []string // "pull" or "done", and how many jobs had ended
	ended []string
}

func (e *endings) told(call string, ended []throttle.Reservation) {
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
	e.told("pull", ended)
	if e.fails {
		return throttle.Pulled{}, errDouble
	}
	return throttle.Pulled{}, nil
}

// Done implements decider.
func (e *endings) Done(_ context.Context, ended ...throttle.Reservation) ([]bool, error) {
	e.told("done", ended)
	return make([]bool, len(ended)), nil
}

// TestHandOver: places are given back in the call that pulls the line; those of tasks that end
// while one is under way go together in the next, and each is told of once. Where nobody waits,
// or the shaper has stopped, nothing is pulled. An error is that of all in the call.
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
				s := &Shaper{throttle: line, driver: line, log: zap.NewNop(), stopped: make(chan struct{})}
				s.puller = newPuller(s)
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
						if err := s.puller.handOver(throttle.Reservation{Job: throttle.Job{ID: id}}); (err != nil) != row.fails {
							t.Errorf("%s: %v", id, err)
						}
					})
				}
				all.Wait()
				if slices.Sort(line.ended); !slices.Equal(line.calls, row.want) || !slices.Equal(line.ended, ids) {
					t.Errorf("calls %v of %v, want %v of each once", line.calls, line.ended, row.want)
				}
			})
		})
	}
}
