package dashboard

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

func TestFar(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for d, want := range map[time.Duration]string{
		0: "now", 50 * time.Millisecond: "now", 1500 * time.Millisecond: "in 1.5s", -90 * time.Second: "1m30s ago",
		50 * time.Hour: "in 2d02h",
	} {
		if got := view.Far(now.Add(d), now); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// TestSpark: if there are few points, they are drawn on the right; the largest point reaches the top.
func TestSpark(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		points []float64
		top    float64
		want   string
	}{
		{nil, 1, ""},
		{[]float64{0, 0}, 0, "M58 20V20.0H59V20.0H60V20Z"},
		{[]float64{0.5, 1}, 1, "M58 20V10.5H59V1.0H60V20Z"},
		{[]float64{2}, 1, "M59 20V1.0H60V20Z"},
	} {
		if got := spark(c.points, c.top); got != c.want {
			t.Errorf("%v: %q, want %q", c.points, got, c.want)
		}
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		used, booked, units int64
		part                float64
		want                bar
	}{
		{0, 0, 0, 0, bar{"100", "0", true, "closed"}},
		{50, 25, 100, 0, bar{"50.0", "25.0", false, "50 of 100 used, 25 booked"}},
		{100, 40, 100, 0, bar{"100.0", "0.0", true, "100 of 100 used, 40 booked"}},
		{300, 0, 100, 0, bar{"100.0", "0.0", true, "300 of 100 used, 0 booked"}},
		{50, 10, 100, 0.6, bar{"50.0", "10.0", true, "50 of 100 used, 10 booked"}},
		{59, 0, 100, 0.6, bar{"59.0", "0.0", false, "59 of 100 used, 0 booked"}},
		{3, 0, 10, 0.39, bar{"30.0", "0.0", true, "3 of 10 used, 0 booked"}},
		{1, 0, 2, 0.1, bar{"50.0", "0.0", true, "1 of 2 used, 0 booked"}},
		{0, 0, 2, 0.1, bar{"0.0", "0.0", false, "0 of 2 used, 0 booked"}},
	} {
		if got := barOf(c.used, c.booked, c.units, c.part); got != c.want {
			t.Errorf("%d and %d of %d, served %v: %+v, want %+v", c.used, c.booked, c.units, c.part, got, c.want)
		}
	}
}
