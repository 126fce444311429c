package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestBookingsInModeOff: a booking is noted and taken back in every mode, so that what is booked is exact when the
// limits of a scope are enforced again.
func TestBookingsInModeOff(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		limit := throttle.Limit{Units: 1, Window: time.Minute, Precision: time.Second}
		scopes := tenantAndGlobal(limit, throttle.Limit{Units: 10, Window: time.Minute, Precision: time.Second})
		for _, row := range []struct {
			test        string
			book, leave throttle.Mode // of the global scope while a second job is booked, and while it leaves
		}{
			{"all the time", throttle.Off, throttle.Off},
			{"when it leaves", throttle.Enforce, throttle.Off},
			{"when it is booked", throttle.Off, throttle.Enforce},
			{"never", throttle.Enforce, throttle.Enforce},
		} {
			for name, s := range map[string]throttletest.Subject{
				"scripts": newScripted(newThrottle(t, client, scopes, nil)),
				"model":   throttletest.NewModel(scopes, throttle.Options{Lookahead: maxWindow}),
			} {
				ask := func(id, tenant string, want throttle.Outcome) throttle.Job {
					t.Helper()
					job := throttle.Job{ID: id, Weight: 1, Keys: of(tenant)}
					if r, err := s.Reserve(dawn, job); err != nil || r.Outcome != want {
						t.Fatalf("off %s, %s: %s is %s, %v; want %s", row.test, name, id, r.Outcome, err, want)
					}
					return job
				}
				set := func(mode throttle.Mode) {
					t.Helper()
					if err := s.SetMode(dawn, throttle.Global, mode, time.Time{}); err != nil {
						t.Fatal(err)
					}
				}
				ask("first of a", "a", throttle.Granted)
				ask("first of b", "b", throttle.Granted)
				ask("stays", "a", throttle.Booked)
				set(row.book)
				leaves := ask("leaves", "b", throttle.Booked)
				set(row.leave)
				if left, err := s.Cancel(dawn, leaves); err != nil || !left {
					t.Fatalf("off %s, %s: left %t, %v", row.test, name, left, err)
				}
				set(throttle.Enforce)
				if u, err := s.Usage(dawn, throttle.Global, ""); err != nil || u.Limits[0].Booked != 1 {
					t.Errorf("off %s, %s: %d units are booked, %v; want that of the job that stays", row.test, name,
						u.Limits[0].Booked, err)
				}
			}
		}
	})
}
