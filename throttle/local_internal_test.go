package throttle

import (
	"strconv"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// TestLocalShareForgets: a flood of scope keys in one outage is refused at the
// bound, and does not keep later keys out once its buckets are full again.
func TestLocalShareForgets(t *testing.T) {
	t.Parallel()
	l := newLocalShare(1)
	now := time.Unix(1_800_000_000, 0)
	take := func(key string, now time.Time) bool {
		_, taken := l.take(localGrant{}, []localCharge{{localLimit{wire.ScopeKey("tenant", key), PerMinute(4)}, 2}}, now)
		return taken
	}
	for n := range maxLocalKeys {
		if !take(strconv.Itoa(n), now) {
			t.Fatalf("key %d was refused", n)
		}
	}
	if take("one more", now) {
		t.Fatalf("granted to more than %d keys", maxLocalKeys)
	}
	if take("0", now) {
		t.Fatal("a known key got more than its share")
	}
	if !take("one more", now.Add(time.Minute)) {
		t.Fatal("refused after all buckets had filled again")
	}
	if len(l.buckets) != 1 {
		t.Fatalf("%d buckets are kept, want 1", len(l.buckets))
	}
}

// TestLocalShareOfManyGoroutines: goroutines that come in another order than the one in
// which they looked at the clock do not make the same time fill the buckets again.
func TestLocalShareOfManyGoroutines(t *testing.T) {
	t.Parallel()
	l := newLocalShare(1)
	charges := []localCharge{{localLimit{"tenant:a", PerSecond(1000)}, 1}}
	first := time.Unix(1_800_000_000, 0)
	second := first.Add(10 * time.Millisecond)
	taken := 0
	for range 10_000 {
		for _, now := range []time.Time{second, first} {
			if _, is := l.take(localGrant{}, charges, now); is {
				taken++
			}
		}
	}
	if most := 500 + 5; taken < 500 || taken > most {
		t.Errorf("%d units taken within 10 ms, want the burst of 500 and at most 5 more", taken)
	}
}
