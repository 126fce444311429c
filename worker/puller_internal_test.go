package worker

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// dueDouble is a throttle that says when a pull is due, and records the pulls.
type dueDouble struct {
	decider
	driver
	looker
	mu    sync.Mutex
	due   time.Time
	then  func(now time.Time) time.Time // due after a pull; nil: no more
	fails bool
	full  int           // so many pulls
	takes time.Duration // a pull
	pulls []time.Time
}

// Check implements looker.
func (d *dueDouble) Check(context.Context) ([]inspect.Finding, error) { return nil, nil }

// Due implements driver.
func (d *dueDouble) Due() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.due
}

// Pull implements driver.
func (d *dueDouble) Pull(context.Context, ...throttle.Reservation) (throttle.Pulled, error) {
	began := time.Now()
	time.Sleep(d.takes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pulls = append(d.pulls, began)
	if d.then != nil {
		d.due = d.then(time.Now())
	}
	if d.fails {
		return throttle.Pulled{}, errDouble
	}
	return throttle.Pulled{Full: len(d.pulls) <= d.full}, nil
}

// times returns when the throttle was pulled.
func (d *dueDouble) times() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.pulls)
}

// TestPullsWhenDue: the line is pulled when an answer says that a pull is due, at most every
// 50 ms, and every half second anyway; a pull that failed is tried again every 100 ms.
func TestPullsWhenDue(t *testing.T) {
	t.Parallel()
	const long = 10 * time.Second
	rows := map[string]struct {
		due           func(now time.Time) time.Time // as the answer of each pull says
		fails         bool
		least, most   int
		closest, wide time.Duration // of two pulls
	}{
		"nothing waits": {func(time.Time) time.Time { return time.Time{} }, false, 20, 21, 500 * time.Millisecond,
			500 * time.Millisecond},
		"far ahead": {func(now time.Time) time.Time { return now.Add(time.Hour) }, false, 20, 21,
			500 * time.Millisecond, 500 * time.Millisecond},
		"always due": {func(now time.Time) time.Time { return now }, false, 150, 200, 50 * time.Millisecond,
			61 * time.Millisecond},
		"long ago": {func(now time.Time) time.Time { return now.Add(-time.Hour) }, false, 150, 200,
			50 * time.Millisecond, 61 * time.Millisecond},
		"in 200ms": {func(now time.Time) time.Time {
			return now.Truncate(200 * time.Millisecond).Add(
				200 * time.Millisecond)
		}, false, 48, 52, 50 * time.Millisecond, 201 * time.Millisecond},
		"it cannot be": {func(now time.Time) time.Time { return now }, true, 100, 101, 100 * time.Millisecond,
			100 * time.Millisecond},
		"sooner than was": {func(now time.Time) time.Time { return now.Add(70 * time.Millisecond) }, false, 120,
			143, 70 * time.Millisecond, 81 * time.Millisecond},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				line := &dueDouble{fails: row.fails, then: row.due}
				s := &Shaper{throttle: line, looks: line, driver: line, log: zap.NewNop(), stopped: make(chan struct{})}
				s.puller = newPuller(s)
				s.puller.start()
				for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					s.puller.answered() // as with any other answer
				}
				close(s.stopped)
				s.puller.end()
				s.puller.done.Wait()
				pulls := line.times()
				if n := len(pulls); n < row.least || n > row.most {
					t.Errorf("pulled %d times in %s, want %d to %d", n, long, row.least, row.most)
				}
				for i := 1; i < len(pulls); i++ {
					if gap := pulls[i].Sub(pulls[i-1]); gap < row.closest || gap > row.wide {
						t.Fatalf("pulls %s from each other, want %s to %s", gap, row.closest, row.wide)
					}
				}
			})
		})
	}
}

// TestPullsOnAfterAFullOne: after a full pull the next one follows when Redis has had a pause as
// long as the full pull.
func TestPullsOnAfterAFullOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := &dueDouble{full: 10, takes: 4 * time.Millisecond, then: func(now time.Time) time.Time { return now }}
		s := &Shaper{throttle: line, looks: line, driver: line, log: zap.NewNop(), stopped: make(chan struct{})}
		s.puller = newPuller(s)
		s.puller.start()
		time.Sleep(time.Second)
		close(s.stopped)
		s.puller.end()
		s.puller.done.Wait()
		pulls := line.times()
		for i := 1; i <= 11; i++ {
			want, gap := 2*line.takes, pulls[i].Sub(pulls[i-1])
			if i > line.full {
				want = pullEvery
			}
			if gap < want || gap > want+pullSpread {
				t.Errorf("pull %d came %s after the one before, want %s", i, gap, want)
			}
		}
	})
}

// TestPullsSooner: if an answer says that the line is due sooner than known, the puller pulls then,
// however long it would have slept.
func TestPullsSooner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := new(dueDouble)
		s := &Shaper{throttle: line, looks: line, driver: line, log: zap.NewNop(), stopped: make(chan struct{})}
		s.puller = newPuller(s)
		s.puller.start()
		time.Sleep(120 * time.Millisecond)
		line.mu.Lock()
		line.due = time.Now().Add(100 * time.Millisecond)
		line.mu.Unlock()
		s.puller.answered()
		time.Sleep(99 * time.Millisecond)
		if n := len(line.times()); n != 1 {
			t.Fatalf("pulled %d times before it was due, want the first time only", n)
		}
		time.Sleep(2 * time.Millisecond)
		if n := len(line.times()); n != 2 {
			t.Fatalf("pulled %d times when it was due, want twice", n)
		}
		close(s.stopped)
		s.puller.end()
		s.puller.done.Wait()
	})
}
