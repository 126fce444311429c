package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestLongMaxWaitAndAWindowThatIsAdded: jobs with a MaxWait of half a minute are granted for
// up to a window ahead. A window that another process asks for meanwhile, or that is set, counts from
// then on, also what starts later; the one that was there goes on, and both are kept.
func TestLongMaxWaitAndAWindowThatIsAdded(t *testing.T) {
	t.Parallel()
	old, added := throttle.Per(5, 10*time.Second), throttle.PerMinute(8)
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, set := range []bool{false, true} {
			options := throttle.Options{Lookahead: 2 * time.Minute}
			first := newThrottle(t, client, globalScope(old), &options)
			a := newScripted(first)
			b := newScripted(sameAs(t, client, first, globalScope(old, added), options))
			var before, since []throttletest.Start
			asked := 0
			ask := func(who *scripted, at time.Duration, starts *[]throttletest.Start) {
				t.Helper()
				asked++
				r, err := who.Reserve(dawn.Add(at),
					throttle.Job{ID: fmt.Sprint("job", asked), Weight: 1, MaxWait: 30 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if r.Outcome == throttle.Granted {
					*starts = append(*starts, throttletest.Start{At: r.Start, Weight: 1})
				} else if _, err := who.Cancel(dawn.Add(at), r.Job); err != nil {
					t.Fatal(err)
				}
			}
			for _, at := range []time.Duration{0, time.Millisecond} { // for now, and for the end of the window
				for range 6 {
					ask(a, at, &before)
				}
			}
			if last := before[len(before)-1].At; len(before) != 10 || !last.Equal(dawn.Add(10*time.Second)) {
				t.Fatalf("%d granted, the last for %s; want 10, the last in 10 s", len(before), last.Sub(dawn))
			}
			if set {
				if err := a.SetLimits(dawn.Add(time.Second), throttle.Global, "", []throttle.Limit{old, added},
					time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 60 {
				at := time.Second + time.Duration(i)*1500*time.Millisecond
				ask(b, at, &since)
				if set {
					ask(a, at, &since)
				}
			}
			if len(since) < 8 {
				t.Errorf("set %t: %d granted since, want at least what a minute has room for", set, len(since))
			}
			for _, over := range throttletest.Check(globalScope(old), append(before, since...)) {
				t.Errorf("set %t: %s", set, over)
			}
			for _, over := range throttletest.Check(globalScope(added), since) {
				t.Errorf("set %t, since it was added: %s", set, over)
			}
		}
	})
}

// TestLineOutlivesTheLifeOfItsKeys: a job whose turn comes later than the keys of the line live
// after a write starts all the same, since jobs in line ask again before: each of 45 tenants has
// one job, and one job starts a day.
func TestLineOutlivesTheLifeOfItsKeys(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	d := newDriver(t, tenantsOf(throttle.PerDay(1), throttle.PerDay(100)), throttle.Options{})
	late := make(map[string]time.Time)
	ask := func(job throttle.Job) {
		r := d.ask(job)
		late[job.ID] = r.AskAgain
		if after := r.AskAgain.Sub(d.now); after > 11*day {
			t.Errorf("%s is to ask again after %s", job.ID, after)
		}
	}
	for i := range 45 {
		ask(throttle.Job{ID: fmt.Sprint("job", i), Weight: 1, Keys: of(fmt.Sprint("t", i))})
	}
	for range 46 {
		d.run(day, longtest.Of(2*time.Hour, 30*time.Minute))
		for id, at := range late {
			if !at.IsZero() && !at.After(d.now) && d.started[id].IsZero() {
				ask(d.jobs[id])
			}
		}
	}
	d.all(45)
}
