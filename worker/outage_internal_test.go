package worker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestRefusedAreRememberedOnce: a task that is refused again and again is remembered once, as it
// was refused last.
func TestRefusedAreRememberedOnce(t *testing.T) {
	t.Parallel()
	var o outage
	for retried := range 3 {
		for n := range mostRefused + 1 {
			o.refuse(wakeup{id: fmt.Sprint(n), retried: retried, job: throttle.Job{ID: fmt.Sprint(n)}}, time.Second)
		}
	}
	tasks := o.over()
	if got := len(tasks); got != mostRefused {
		t.Fatalf("%d are remembered, want %d", got, mostRefused)
	}
	for _, task := range tasks {
		if task.retried != 2 || task.id == fmt.Sprint(mostRefused) {
			t.Fatalf("task %s is remembered as refused at retry %d, want 2, and the first %d tasks", task.id,
				task.retried, mostRefused)
		}
	}
}

// TestBackoffGrowsWithTheOutage: delays grow from Backoff to a minute, with jitter; in the next
// outage they begin anew.
func TestBackoffGrowsWithTheOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o outage
		refuse := func(least, from, to time.Duration) {
			t.Helper()
			for range 100 {
				if got := o.refuse(wakeup{job: throttle.Job{ID: "a"}}, least); got < from || got >= to {
					t.Fatalf("put back for %s, want %s to %s", got, from, to)
				}
			}
		}
		for range 2 {
			refuse(time.Second, time.Second, 2*time.Second)
			time.Sleep(10 * time.Second)
			refuse(time.Second, 10*time.Second, 20*time.Second)
			time.Sleep(time.Hour)
			refuse(time.Second, 30*time.Second, time.Minute)
			refuse(time.Hour, time.Hour, 2*time.Hour)
			o.over()
		}
	})
}
