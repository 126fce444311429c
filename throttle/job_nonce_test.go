package throttle_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestNonceIsForALostAnswer: an answer that has arrived is not kept. So a reservation has no nonce that its
// caller did not choose, and a granted job that asks again is a new start, charged again, with a nonce
// as without.
func TestNonceIsForALostAnswer(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for _, nonce := range []string{"", "chosen"} {
			th := newThrottle(t, client, globalScope(throttle.PerHour(10)), nil)
			job := throttle.Job{ID: "a", Weight: 3, Nonce: nonce}
			for i := range int64(3) {
				r := reserve(t, th, job)
				if job = r.Job; r.Outcome != throttle.Granted || r.Replayed || job.Nonce != nonce {
					t.Errorf("nonce %q, asked %d times: %s, replayed %t, nonce %q", nonce, i+1, r.Outcome, r.Replayed, job.Nonce)
				}
				if usage, err := inspect.New(th).Usage(t.Context(), throttle.Global, ""); err != nil ||
					usage.Limits[0].Used != 3*(i+1) {
					t.Errorf("nonce %q, asked %d times: %+v, %v", nonce, i+1, usage.Limits, err)
				}
			}
		}
	})
}
