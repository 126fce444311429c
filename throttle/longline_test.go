package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestLineOutlivesTheLifeOfItsKeys: a job whose turn comes later than the keys of the line
// live after a write starts all the same, since those in line ask again before: each of 45
// tenants has one job, one starts a day.
func TestLineOutlivesTheLifeOfItsKeys(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	d := newDriver(t, tenantsOf(throttle.PerDay(1), throttle.PerDay(100)), throttle.Options{})
	late := make(map[string]time.Time)
	ask := func(job throttle.Job) {
		r := d.ask(job)
		late[job.ID] = r.Late
		if after := r.Late.Sub(d.now); after > 11*day {
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
