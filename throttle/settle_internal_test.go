package throttle

import (
	"testing"
)

// TestSettlementWithoutWhatWasOff: the event of a settlement leaves out scopes that were not charged.
func TestSettlementWithoutWhatWasOff(t *testing.T) {
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
		t.Errorf("got %+v", s)
	}
}
