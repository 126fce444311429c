package account

import "testing"

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, row := range []struct {
		of            []int
		percent, want int
	}{{nil, 99, 0}, {[]int{7}, 50, 7}, {[]int{7}, 99, 7}, {[]int{7}, 0, 7}, {hundred, 50, 50}, {hundred, 99, 99},
		{hundred[:50], 99, 100}, {hundred, 100, 100}} {
		if got := Percentile(append([]int{}, row.of...), row.percent); got != row.want {
			t.Errorf("%d %% of %d: got %d, want %d", row.percent, len(row.of), got, row.want)
		}
	}
}
