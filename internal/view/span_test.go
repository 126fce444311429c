package view_test

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

// TestTimes: a product that no Duration holds is far ahead, and not past.
func TestTimes(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for n, want := range map[float64]time.Duration{0: 0, 0.5: day / 2, 3: 3 * day, 150_000: 200 * 365 * day} {
		if got := view.Times(day, n); got != want {
			t.Errorf("%v days are %s, want %s", n, got, want)
		}
	}
}
