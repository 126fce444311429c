package worker_test

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestDrainOverAClosedNight: tasks of four tenants come while hours are open, which close before all are done. 16
// workers go on in the morning: at once, each tenant with its share, and with one put-back for each task that waits.
func TestDrainOverAClosedNight(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	tasks := longtest.Of(120, 2400)
	night := longtest.Of(10*time.Minute, 14*time.Hour) // from 00:10 in UTC on, by a clock that is 05:45 ahead
	opens := time.Date(2000, 1, 1, 5, 55, 0, 0, time.UTC).Add(night).Format("15:04")
	hours := throttle.OpenHours(opens + "-05:55 @Asia/Kathmandu")
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(int64(tasks / 20)), hours}}, {Name: "tenant"},
	}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		edge := time.Now().Add(10*time.Minute + night)
		c := w.crossed(tasks, edge, 15*time.Hour)
		if c.before == 0 || c.before == tasks {
			t.Errorf("%d of %d started before the night", c.before, tasks)
		}
		share := (tasks - c.before) / 4
		c.expectShares(t, share, share/10+2)
		w.expectPutBacks(tasks + tasks/20)
	})
}
