package throttle_test

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestSharesOfLateSettlements: a tenant's jobs are charged ten times what they take, and settled ten seconds after
// their starts. While they run, their tenant is behind by what they will give back; it is not left behind for good.
func TestSharesOfLateSettlements(t *testing.T) {
	t.Parallel()
	b := newBacklogs(t, append(globalScope(throttle.Per(100, 10*time.Second)), throttle.Scope{Name: "tenant"}),
		throttle.Options{Lookahead: time.Second})
	for range 3000 {
		b.arrive("estimates", 60, 10)
		b.arrive("knows", 60, 1)
		b.now = b.now.Add(100 * time.Millisecond)
		for _, r := range b.end(func(string) time.Duration { return 10 * time.Second }) {
			if _, err := b.subject.Settle(b.now, r, 1); err != nil {
				t.Fatal(err)
			}
		}
		b.pull()
	}
	if b.started["estimates"] < b.started["knows"]/2 {
		t.Errorf("started: %v; want at least half as many of the tenant whose jobs are charged too much", b.started)
	}
}
