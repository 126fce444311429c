package metrics

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestWindowOf(t *testing.T) {
	t.Parallel()
	for want, limit := range map[string]throttle.Limit{
		"pause": {}, "1m": throttle.PerMinute(5), "24h": throttle.PerDay(5), "running": throttle.Running(2),
	} {
		if got := windowOf(limit); got != want {
			t.Errorf("%s: %q, want %q", limit, got, want)
		}
	}
}
