package check

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// one is the key of all charges.
type one struct{}

func (one) Key(string) string { return "k" }

func TestCharges(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: "s", Limits: []throttle.Limit{throttle.Per(10, 100*time.Microsecond)}}}
	for _, row := range []struct {
		name    string
		charges []Charge
		shorter time.Duration
		worst   int64
		over    int
	}{
		{"none", nil, 0, 0, 0},
		{"all that there is", []Charge{{At: 1000, Units: 10}, {At: 1100, Units: 10}}, 0, 10, 0},
		{"too close", []Charge{{At: 1000, Units: 10}, {At: 1099, Units: 10}}, 0, 20, 1},
		{"a shorter window", []Charge{{At: 1000, Units: 10}, {At: 1099, Units: 10}}, time.Microsecond, 10, 0},
		{"settled before the next", []Charge{{At: 1000, Units: 10, ThenAt: 1050, Then: 4}, {At: 1050, Units: 6}}, 0, 10, 0},
		{"settled after the next", []Charge{{At: 1000, Units: 10, ThenAt: 1051, Then: 4}, {At: 1050, Units: 6}}, 0, 16, 1},
		{"given back", []Charge{{At: 1000, Units: 10, ThenAt: 1010}, {At: 1020, Units: 10}}, 0, 10, 0},
		{"given back too late", []Charge{{At: 1000, Units: 10, ThenAt: 1010}, {At: 1005, Units: 1}}, 0, 11, 1},
		{"settled when it has left", []Charge{{At: 1000, Units: 10, ThenAt: 1200, Then: 4}, {At: 1150, Units: 7}}, 0, 10, 0},
		{"two at once", []Charge{{At: 1000, Units: 6}, {At: 1000, Units: 6}}, 0, 12, 1},
	} {
		for i := range row.charges {
			row.charges[i].Of = one{}
		}
		use := Charges(row.charges, scopes, row.shorter)[0]
		if use.Worst != row.worst || use.Over != row.over {
			t.Errorf("%s: at most %d, %d over; want %d, %d", row.name, use.Worst, use.Over, row.worst, row.over)
		}
	}
}
