package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// lineDouble is a throttle with a lane of these jobs that tells what it is weeded of.
type lineDouble struct {
	decider
	waiting []throttle.Job
	fails   bool
	lost    int // the number of the call whose answer is lost
	calls   []string
}

var errDouble = errors.New("the double fails")

// Weed implements decider, in pages of two.
func (l *lineDouble) Weed(_ context.Context, _ throttle.Lane, gone []throttle.Job, aside time.Duration) ([]throttle.Job, throttle.Lane, error) {
	call := aside.String()
	for _, job := range gone {
		call += " " + job.ID
		for i := range l.waiting {
			if l.waiting[i].ID == job.ID {
				l.waiting = append(l.waiting[:i:i], l.waiting[i+1:]...)
				break
			}
		}
	}
	l.calls = append(l.calls, call)
	if l.fails {
		return nil, "", errDouble
	}
	if len(l.calls) == l.lost {
		return nil, "", &throttle.UnavailableError{Failure: throttle.FailureTimeout, Err: context.DeadlineExceeded}
	}
	return l.waiting[:min(2, len(l.waiting))], "", nil
}

// TestWeederTakesWhatIsGone: only what asynq says is gone is taken out; the first task
// that may come ends it.
func TestWeederTakesWhatIsGone(t *testing.T) {
	t.Parallel()
	const there = "asynq:default/there/0"
	missing := func(n int) string { return fmt.Sprintf("asynq:default/%d/0", n) }
	rows := map[string]struct {
		lane    []string
		away    bool // asynq's Redis is
		fails   bool // the throttle does
		lost    int  // the number of the call whose answer is
		stopped bool
		want    []string
	}{
		"all are gone":        {lane: []string{missing(0), missing(1), missing(2)}, want: []string{"1s", "1s 0 1", "1s 2", "0s"}},
		"one comes":           {lane: []string{missing(0), missing(1), missing(2), there, missing(3)}, want: []string{"1s", "1s 0 1", "0s 2"}},
		"the first comes":     {lane: []string{there, missing(0)}, want: []string{"1s", "0s 0"}},
		"one is none of them": {lane: []string{missing(0), "other"}, want: []string{"1s", "0s 0"}},
		"asynq does not say":  {lane: []string{missing(0), missing(1)}, away: true, want: []string{"1s", "1s"}},
		"the shaper stops":    {lane: []string{missing(0), missing(1)}, stopped: true, want: []string{"1s", "1s"}},
		"nobody is old":       {want: []string{"1s", "1s"}},
		"an answer is lost":   {lane: []string{missing(0), missing(1), missing(2)}, lost: 2, want: []string{"1s", "1s 0 1", "1s 0 1", "1s 2", "0s"}},
		"Redis is away":       {lane: []string{missing(0)}, fails: true, want: []string{"1s"}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
			t.Cleanup(func() { _ = client.Close() })
			if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("mail", nil), asynq.TaskID("there")); err != nil {
				t.Fatal(err)
			}
			if row.away {
				_ = client.Close()
			}
			line := &lineDouble{fails: row.fails, lost: row.lost}
			for _, id := range row.lane {
				line.waiting = append(line.waiting, throttle.Job{ID: id, Weight: 1, Lane: "a|"})
			}
			s := &Shaper{throttle: line, inspector: asynq.NewInspectorFromRedisClient(client), log: zap.NewNop(), stopped: make(chan struct{})}
			s.puller = newPuller(s)
			if row.stopped {
				close(s.stopped)
			}
			if err := s.puller.weeder.weed(t.Context(), "a|"); errors.Is(err, errDouble) != row.fails || !row.fails && err != nil {
				t.Fatalf("got %v", err)
			}
			short := strings.NewReplacer("asynq:default/", "", "/0", "")
			for i := range line.calls {
				line.calls[i] = short.Replace(line.calls[i])
			}
			if diff := cmp.Diff(row.want, line.calls); diff != "" {
				t.Errorf("weeded by (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWeederTakesLanesOn: up to a number, and none after stop, which waits for the lane
// that is weeded.
func TestWeederTakesLanesOn(t *testing.T) {
	t.Parallel()
	s := &Shaper{throttle: &lineDouble{fails: true}, log: zap.NewNop(), stopped: make(chan struct{})}
	s.puller = newPuller(s)
	w := s.puller.weeder
	w.running = true // nobody weeds
	for n := range mostWeeding + 1 {
		if got := w.take(throttle.Lane(fmt.Sprint(n, "|"))); got != (n < mostWeeding) {
			t.Fatalf("lane %d is taken on: %t", n, got)
		}
	}
	if !w.has("0|") || w.has("100|") {
		t.Error("it does not have the lanes that were taken on")
	}
	w.drop("0|")
	w.running = false
	if !w.take("100|") || w.has("0|") {
		t.Error("there is no room where a lane was dropped")
	}
	close(s.stopped)
	w.end()
	w.done.Wait()
	if w.drop("1|"); w.take("1|") {
		t.Error("a lane is taken on after stop")
	}
}
