package throttle_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestRaisedLimitStaysStrict: an exact limit is raised far, lowered and raised again while jobs start, are refunded
// and settled. The ledger gets coarser meanwhile. A list of all starts shows that no window is over the limit in force,
// that Usage counts the whole window and at most one sub-window more, and that Count errs by at most a sub-window.
func TestRaisedLimitStaysStrict(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const window, coarse = time.Minute, 600 * time.Millisecond
	type start struct {
		at    time.Time
		units int64
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		random := rand.New(rand.NewPCG(1, 2))
		th := newThrottle(t, client, []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{
			throttle.PerMinute(100)}}}, &throttle.Options{Lookahead: time.Second})
		s, now := newScripted(th), dawn
		var starts []start
		var grants []throttle.Reservation // of the same jobs as starts
		most := int64(100)
		used := func(from, to time.Time) (sum int64) { // with from, without to
			for _, x := range starts {
				if !x.at.Before(from) && x.at.Before(to) {
					sum += x.units
				}
			}
			return sum
		}
		for n := range 3000 {
			now = now.Add(time.Duration(random.Int64N(100_000)) * time.Microsecond)
			if limit, changes := map[int]int64{300: 5000, 1500: 3000, 2000: 9000}[n]; changes {
				noted(t, s.SetLimits(now, throttle.Global, "", []throttle.Limit{throttle.PerMinute(limit)}, time.Time{}))
				most = limit
				now = now.Add(time.Microsecond)
			}
			r, err := s.Reserve(now, throttle.Job{ID: fmt.Sprint("job", n), Weight: 1 + random.Int64N(1+most/1000)})
			noted(t, err)
			if r.Outcome == throttle.Granted {
				starts, grants = append(starts, start{r.Start, r.Job.Weight}), append(grants, r)
				if sum := used(r.Start.Add(-window+time.Microsecond), r.Start.Add(time.Microsecond)); sum > most {
					t.Fatalf("%d units in the window that ends at job %d, want at most %d", sum, n, most)
				}
			} else {
				_, err := s.Cancel(now, r.Job)
				noted(t, err)
				_, err = s.Pull(now) // so that its lane ends
				noted(t, err)
			}
			if n%7 == 0 && len(grants) > 0 {
				i := len(grants) - 1 - random.IntN(min(len(grants), 200))
				actual := grants[i].Job.Weight * random.Int64N(2) / 2
				if done, err := s.Settle(now, grants[i], actual); err == nil && done {
					starts[i].units = actual
				}
			}
			if n%50 == 0 {
				usage, err := s.Usage(now, throttle.Global, "")
				noted(t, err)
				least, upTo := used(now.Add(-window+time.Microsecond), now.Add(time.Microsecond)),
					used(now.Add(-window-2*coarse), now.Add(time.Microsecond))
				if got := usage.Limits[0].Used; got < least || got > upTo {
					t.Errorf("after job %d: %d units are used, want %d to %d", n, got, least, upTo)
				}
				got, err := s.Count(now, throttle.Global, "", window/2, 0)
				noted(t, err)
				if want := used(now.Add(-window/2), now); got < used(now.Add(-window/2), now.Add(-coarse)) ||
					got > used(now.Add(-window/2-coarse), now.Add(time.Microsecond)) {
					t.Errorf("after job %d: counted %d units, want %d", n, got, want)
				}
			}
		}
		if len(starts) < 2000 {
			t.Errorf("only %d started", len(starts))
		}
	})
}
