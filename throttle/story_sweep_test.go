package throttle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestSweepExpires: a mode is set while more timers stand than one call makes due. What the sweep leaves to the next
// pulls expires, although no pull may come.
func TestSweepExpires(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Per(1, time.Hour)}}}
		s := newScripted(newThrottle(t, client, scopes, nil))
		for i := range 600 {
			job := throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of(fmt.Sprint(i / 2))}
			if _, err := s.Reserve(dawn, job); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SetMode(dawn, "tenant", throttle.Shadow, time.Time{}); err != nil {
			t.Fatal(err)
		}
		for _, key := range keyNames(t, client, s.throttle) {
			if strings.HasSuffix(key, ":4:claims") && ttl(t, client, key) <= 0 {
				t.Errorf("key %q has no expiry", key)
			}
		}
	})
}
