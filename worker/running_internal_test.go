package worker

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestTimerBesideARenewal: a timer that went off just before its lease was renewed takes no place from its task.
func TestTimerBesideARenewal(t *testing.T) {
	t.Parallel()
	r := &run{granted: throttle.Reservation{Lease: time.Hour}, soon: time.NewTimer(time.Hour)}
	n := newRunner(nil)
	n.runs[r] = struct{}{}
	r.renewed(time.Now())
	n.outlived(r)
	if r.lost {
		t.Error("the places are lost, want them kept for the renewed lease")
	}
}
