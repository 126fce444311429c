package worker

import (
	"fmt"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestRefusedAreRememberedOnce: a task that is refused again and again takes one place of
// those that are remembered, and as it was refused last.
func TestRefusedAreRememberedOnce(t *testing.T) {
	t.Parallel()
	var r refused
	refuse := func(n, retried int) {
		r.add(wakeup{id: fmt.Sprint(n), retried: retried, job: throttle.Job{ID: fmt.Sprint(n)}})
	}
	for retried := range 3 {
		for n := range mostRefused + 1 {
			refuse(n, retried)
		}
	}
	if got := len(r.tasks); got != mostRefused {
		t.Fatalf("%d are remembered, want %d", got, mostRefused)
	}
	for n := range mostRefused {
		if got := r.tasks[fmt.Sprint(n)]; got.retried != 2 {
			t.Fatalf("task %d is remembered as refused at retry %d, want 2", n, got.retried)
		}
	}
}
