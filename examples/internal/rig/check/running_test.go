package check

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestRunning(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		spans []Span
		worst int64
		over  int
	}{
		{"nothing", nil, 0, 0},
		{"one after the other", []Span{{At: 0, End: 10, Units: 2}, {At: 10, End: 20, Units: 2}}, 2, 0},
		{"a microsecond too soon", []Span{{At: 0, End: 10, Units: 2}, {At: 9, End: 20, Units: 2}}, 4, 1},
		{"as many as may", []Span{{At: 0, End: 10, Units: 1}, {At: 5, End: 20, Units: 1}}, 2, 0},
		{"one within another", []Span{{At: 0, End: 100, Units: 2}, {At: 5, End: 6, Units: 1},
			{At: 7, End: 8, Units: 1}}, 3, 2},
		{"at one instant", []Span{{At: 7, End: 7, Units: 2}, {At: 7, End: 7, Units: 2}}, 4, 1},
		{"another key", []Span{{At: 0, End: 10, Units: 2}, {At: 5, End: 10, Units: 2, Key: "b"}}, 2, 0},
	} {
		if got := Running(row.spans, throttle.Running(2)); got.Worst != row.worst || got.Over != row.over {
			t.Errorf("%s: got %d at once, %d over; want %d, %d", row.name, got.Worst, got.Over, row.worst, row.over)
		}
	}
	if got := Running([]Span{{At: 0, End: 1, Units: 9, Key: "a"}},
		throttle.Running(throttle.Unlimited)); got.Over != 0 || got.Key != "a" {
		t.Errorf("unlimited: %+v", got)
	}
}
