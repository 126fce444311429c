package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestPutBackErrorText_HoldsNoKey compares the texts of put-backs by limits that were set, by pauses
// and by waits of the upstream. No text holds a key or the upstream's words.
func TestPutBackErrorText_HoldsNoKey(t *testing.T) {
	t.Parallel()
	const secret = "acme-secret"
	at := time.Date(2026, 3, 1, 12, 0, 5, 250_000_000, time.FixedZone("east", 3600))
	said := errors.New("421 no more today, " + secret)
	blocked := &throttle.BlockedError{Job: secret, Weight: 5, Scope: "tenant", Key: secret, Limit: throttle.PerMinute(3)}
	pause := &throttle.Hold{Scope: "domain", Key: secret, Until: at, Paused: true}
	zero := &throttle.Hold{Scope: "tenant", Key: secret, Limit: throttle.PerMinute(0)}
	rows := []struct {
		putBack worker.PutBackError
		want    string
	}{
		{worker.PutBackError{Err: blocked}, "throttled: it weighs more than a limit that was set allows"},
		{worker.PutBackError{Err: fmt.Errorf("%s: %w", secret, blocked)},
			"throttled: it weighs more than a limit that was set allows"},
		{worker.PutBackError{Err: worker.AskedToWait("domain", 90*time.Second, said)},
			"throttled: worker: the upstream asks to wait 1m30s, scope domain"},
		{worker.PutBackError{Err: fmt.Errorf("%s: %w", secret, worker.AskedToWait("domain", 0, said))},
			"throttled: worker: the upstream asks to wait 1m0s, scope domain"},
		{worker.PutBackError{Err: worker.AskedToWait("", 0, said)},
			`throttled: worker: the upstream asks to wait 1m0s, scope ""`},
		{worker.PutBackError{Slot: at, Hold: pause}, "throttled: domain paused, starts about 2026-03-01T11:00:05Z"},
		{worker.PutBackError{Slot: at, Hold: pause, InLine: true},
			"throttled: domain paused, starts about 2026-03-01T11:00:05Z"},
		{worker.PutBackError{Slot: at, Hold: zero, InLine: true},
			"throttled: closed by tenant limit 0/1m, until that is changed"},
		{worker.PutBackError{Slot: at, InLine: true}, "throttled: in line, about 2026-03-01T11:00:05Z"},
		{worker.PutBackError{Err: said}, "throttled: Redis cannot decide"},
	}
	for _, row := range rows {
		row.putBack.Queue, row.putBack.TaskID, row.putBack.Delay = secret, secret, time.Minute
		got := row.putBack.Error()
		if got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
		if strings.Contains(got, secret) {
			t.Errorf("%q holds a key", got)
		}
		row.putBack.Delay, row.putBack.Queue = time.Hour, "other"
		if again := row.putBack.Error(); again != got {
			t.Errorf("got %q after %q for another delay, want the same", again, got)
		}
	}
}
