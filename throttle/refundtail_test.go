package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestRefundOfTheNewest: what is left when the newest starts are refunded lies in the ledger's log
// alone. A job without room then had its place looked for in an empty tail, for ever.
func TestRefundOfTheNewest(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for starts := 14; starts < 24; starts++ {
			limit := throttle.Limit{Units: int64(starts), Window: time.Hour, Precision: throttle.Exact}
			th := newThrottle(t, client, globalScope(limit), nil)
			var last throttle.Reservation
			for i := range starts {
				last = reserve(t, th, throttle.Job{ID: fmt.Sprint(i), Weight: 1})
			}
			if done, err := th.Refund(t.Context(), last); err != nil || !done {
				t.Fatalf("%d starts: got %t, %v", starts, done, err)
			}
			if r := reserve(t, th, throttle.Job{ID: "two", Weight: 2}); r.Outcome == throttle.Granted {
				t.Errorf("%d starts: two units were granted where one is free", starts)
			}
			if r := reserve(t, th, throttle.Job{ID: "all", Weight: int64(starts)}); r.Outcome == throttle.Granted {
				t.Errorf("%d starts: all units were granted where one is free", starts)
			}
		}
	})
}
