package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// lineDouble stands for the line of a throttle, with one lane. It records which of the lane's jobs were
// given back.
type lineDouble struct {
	driver
	looker
	waiting []string // the IDs of the jobs; an empty ID: the job has left
	fails   bool     // whether Jobs fails
	lost    bool     // whether the first answer of Leave is lost
	calls   []string
}

var errDouble = errors.New("the double fails")

// Jobs implements looker, in pages of two.
func (l *lineDouble) Jobs(_ context.Context, _, from string) (jobs []throttle.Reservation, next string, err error) {
	if l.fails {
		return nil, "", errDouble
	}
	first, _ := strconv.Atoi(from)
	end := min(first+2, len(l.waiting))
	for _, id := range l.waiting[first:end] {
		if id != "" {
			jobs = append(jobs, throttle.Reservation{Job: throttle.Job{ID: id}, Outcome: throttle.Waiting,
				Lane: "a|"})
		}
	}
	if end < len(l.waiting) {
		next = strconv.Itoa(end)
	}
	return jobs, next, nil
}

// Leave implements driver.
func (l *lineDouble) Leave(_ context.Context, ids []string) ([]bool, error) {
	for i := range l.waiting {
		if slices.Contains(ids, l.waiting[i]) {
			l.waiting[i] = ""
		}
	}
	l.calls = append(l.calls, strings.Join(ids, " "))
	if l.lost {
		l.lost = false
		return nil, &throttle.UnavailableError{Failure: "timeout", Err: context.DeadlineExceeded}
	}
	return make([]bool, len(ids)), nil
}

// Started implements driver.
func (l *lineDouble) Started(throttle.Reservation, time.Time) {}

// End implements driver.
func (l *lineDouble) End(context.Context) error { return nil }

// Due implements driver.
func (l *lineDouble) Due() time.Time { return time.Time{} }

// TestClearerTakesWhatIsGone: only the jobs whose tasks asynq says are gone are taken out of line.
func TestClearerTakesWhatIsGone(t *testing.T) {
	t.Parallel()
	const there = "asynq:default/there/0"
	missing := func(n int) string { return fmt.Sprintf("asynq:default/%d/0", n) }
	rows := map[string]struct {
		lane    []string
		away    bool // asynq's Redis is away
		fails   bool // the throttle fails
		lost    bool // an answer of the throttle is lost
		stopped bool
		want    []string
		err     error
	}{
		"all are gone": {lane: []string{missing(0), missing(1), missing(2)}, want: []string{"0 1 2"}},
		"one comes": {lane: []string{missing(0), missing(1), missing(2), there, missing(3)},
			want: []string{"0 1 2 3"}},
		"the first comes":     {lane: []string{there, missing(0)}, want: []string{"0"}},
		"one is none of them": {lane: []string{missing(0), "other"}, want: []string{"0"}},
		"some have left":      {lane: []string{"", "", "", missing(0)}, want: []string{"0"}},
		"asynq does not say":  {lane: []string{missing(0), missing(1)}, away: true},
		"the shaper stops":    {lane: []string{missing(0), missing(1)}, stopped: true},
		"nobody is old":       {},
		"an answer is lost": {lane: []string{missing(0), missing(1), missing(2)}, lost: true,
			want: []string{"0 1 2"}, err: throttle.ErrUnavailable},
		"Redis is away": {lane: []string{missing(0)}, fails: true, err: errDouble},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
			t.Cleanup(func() { _ = client.Close() })
			if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("mail", nil),
				asynq.TaskID("there")); err != nil {
				t.Fatal(err)
			}
			if row.away {
				_ = client.Close()
			}
			line := &lineDouble{waiting: row.lane, fails: row.fails, lost: row.lost}
			s := &Shaper{driver: line, looks: line, inspector: newInspector(client, zap.NewNop()), log: zap.NewNop(),
				stopped: make(chan struct{})}
			s.puller = newPuller(s)
			if row.stopped {
				close(s.stopped)
			}
			if err := s.puller.prospects.clearLane(t.Context(), "a|"); !errors.Is(err, row.err) {
				t.Fatalf("got %v, want %v", err, row.err)
			}
			short := strings.NewReplacer("asynq:default/", "", "/0", "")
			for i := range line.calls {
				line.calls[i] = short.Replace(line.calls[i])
			}
			if diff := cmp.Diff(row.want, line.calls); diff != "" {
				t.Errorf("gave back (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClearerTakesLanesOn: the clearer takes on each lane once, up to a number of lanes. It takes on no lane
// after Stop, which waits for the lane that is being cleared.
func TestClearerTakesLanesOn(t *testing.T) {
	t.Parallel()
	line := &lineDouble{fails: true}
	s := &Shaper{driver: line, looks: line, log: zap.NewNop(), stopped: make(chan struct{})}
	s.puller = newPuller(s)
	p := s.puller.prospects
	takeOn := func(lane string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.clear(lane)
	}
	p.running = true // as if a goroutine cleared lanes already, so that none is started
	for n := range mostLanes + 1 {
		if got := takeOn(fmt.Sprint(n, "|")); got != (n < mostLanes) {
			t.Fatalf("lane %d is taken on: %t", n, got)
		}
	}
	p.drop("0|")
	p.running = false
	if takeOn("1|") {
		t.Error("a lane is taken on twice")
	}
	if !takeOn("100|") {
		t.Error("no lane is taken on although another lane was dropped")
	}
	close(s.stopped)
	p.end()
	p.done.Wait()
	if p.drop("1|"); takeOn("1|") {
		t.Error("a lane is taken on after stop")
	}
}
