package metrics

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestWindowOf(t *testing.T) {
	t.Parallel()
	exact := throttle.Limit{Units: 5, Window: time.Hour, Precision: throttle.Exact}
	for want, hold := range map[string]throttle.Hold{
		"pause": {Paused: true}, "1m": {Limit: throttle.PerMinute(5)}, "1h": {Limit: exact},
		"running": {Limit: throttle.Running(2)},
	} {
		if got := windowOf(&hold); got != want {
			t.Errorf("%+v: %q, want %q", hold, got, want)
		}
	}
}
