package throttle

import (
	"testing"
)

// TestSettlementLeavesOutUnchargedScopes: the event of a settlement counts the scopes that were charged only. Here the
// global scope was off, and was not charged.
func TestSettlementLeavesOutUnchargedScopes(t *testing.T) {
	t.Parallel()
	th := fakeThrottle(t, newFake(), Options{})
	job := fakeJob("a")
	job.Costs = map[string]int64{Global: 100, "tenant": 2}
	o, err := th.order(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	s := th.settlement(o, func(*charge) int64 { return 1 }, []string{Global})
	if s.Charged != 2 || s.Actual != 1 {
		t.Errorf("got %+v, want 2 units charged and 1 taken", s)
	}
}
