package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestDeadlineThatPassesInLine: the Deadline of a task passes while it stands in line, far
// from its turn. The task is ended with the reason, once, and leaves the line.
func TestDeadlineThatPassesInLine(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	rows := map[string][]asynq.Option{
		"in half a minute": {asynq.Deadline(time.Date(2000, 1, 1, 0, 0, 30, 0, time.UTC))},
		"in two minutes":   {asynq.Deadline(time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC))},
		"in four seconds":  {asynq.Deadline(time.Date(2000, 1, 1, 0, 0, 4, 0, time.UTC))},
		"in half a minute, and a short Timeout": {asynq.Deadline(time.Date(2000, 1, 1, 0, 0, 30, 0, time.UTC)),
			asynq.Timeout(10 * time.Second)},
	}
	for name, opts := range rows {
		for kind, planned := range map[string]bool{"put back": false, "planned": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				inBubble(t, perTenant(1, 20*time.Second), func(t *testing.T, w *world) {
					const before = 60 // 20 minutes
					var user asked
					w.serve(asynq.Config{Concurrency: 4, ErrorHandler: user.config().ErrorHandler, RetryDelayFunc: asSoonAsPossible})
					for n := range before {
						w.enqueue(n, "acme", 1)
					}
					w.until("all stand in line", 2*time.Second, func() bool { return w.shaper.Stats().PutBack >= before-1 })
					id, opts := fmt.Sprintf("%06d", before), append(opts, asynq.MaxRetry(0))
					if planned {
						task := worker.NewTask("mail", nil, headers("acme", 1), append(opts, asynq.TaskID(id))...)
						if _, err := w.newClient().Enqueue(t.Context(), task); err != nil {
							t.Fatal(err)
						}
					} else {
						w.enqueue(before, "acme", 1, opts...)
					}
					w.until("it is ended before its Deadline", time.Until(opts[0].Value().(time.Time)),
						w.in(id, asynq.TaskStateArchived))
					_, _, errs := user.errors()
					t.Logf("ended after %s, ErrorHandler was called %d times: %s", time.Since(w.began), len(errs),
						w.task(id).LastErr)
					if got := w.task(id).LastErr; !strings.Contains(got, "deadline") {
						t.Errorf("its last error is %q, want the reason", got)
					}
					if len(errs) != 1 || w.ran(id) != 0 || w.shaper.Stats().Ended != 1 {
						t.Errorf("ErrorHandler was called %d times, it ran %d times, %d were ended; want 1, 0, 1",
							len(errs), w.ran(id), w.shaper.Stats().Ended)
					}
					if got := len(w.inLine("acme")); got > before {
						t.Errorf("%d jobs stand in line, want its place given up", got)
					}
				})
			})
		}
	}
}
