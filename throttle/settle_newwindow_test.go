package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestRefundGivesBackOnlyWhatAWindowCounted: a job starts while the window is unlimited or absent. Then
// jobs start that fill the window's new limit, and the first job is refunded in the same sub-window. The
// window has not counted it, so it has no more room than before. In one case the granted start of the
// first job is after the window has begun to count.
func TestRefundGivesBackOnlyWhatAWindowCounted(t *testing.T) {
	t.Parallel()
	day := throttle.PerDay(1000)
	unlimited := []throttle.Limit{{Units: throttle.Unlimited, Window: day.Window}}
	for name, row := range map[string]struct {
		before []throttle.Limit // of the tenant
		wait   time.Duration    // the MaxWait of the first job
	}{
		"unlimited":         {before: unlimited},
		"not there":         {before: []throttle.Limit{throttle.PerSecond(1 << 40)}},
		"granted for later": {before: unlimited, wait: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				scopes := tenantAndGlobal(day, throttle.Per(1000, 10*time.Second))
				for subject, s := range map[string]throttletest.Subject{
					"scripts": newScripted(newThrottle(t, client, scopes, nil)),
					"model":   throttletest.NewModel(scopes, throttle.Options{Lookahead: maxWindow}),
				} {
					noted(t, s.SetLimits(dawn, "tenant", "acme", row.before, time.Time{}))
					ask := func(at time.Duration, job throttle.Job) throttle.Reservation {
						job.Weight, job.Keys = 500, of("acme")
						r, err := s.Reserve(dawn.Add(at), job)
						noted(t, err)
						return r
					}
					alone := map[string]int64{throttle.Global: 0}
					if row.wait > 0 { // then the global limit has no room until a second later
						ask(0, throttle.Job{ID: "other", Costs: map[string]int64{throttle.Global: 600}})
					}
					first := ask(9*time.Second, throttle.Job{ID: "first", MaxWait: row.wait})
					noted(t, s.SetLimits(dawn.Add(9*time.Second+time.Millisecond), "tenant", "acme",
						[]throttle.Limit{day}, time.Time{}))
					for i := range 2 {
						r := ask(9500*time.Millisecond, throttle.Job{ID: fmt.Sprint("second", i), Costs: alone})
						if r.Outcome != throttle.Granted {
							t.Fatalf("%s: %s", subject, r.Outcome)
						}
					}
					done, err := s.Refund(dawn.Add(22*time.Second), first)
					if noted(t, err); first.Outcome != throttle.Granted || !done {
						t.Fatalf("%s: first %s, refunded: %t", subject, first.Outcome, done)
					}
					if r := ask(40*time.Second, throttle.Job{ID: "third", Costs: alone}); r.Outcome == throttle.Granted {
						t.Errorf("%s: 1500 units start within the day", subject)
					}
				}
			})
		})
	}
}

func noted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
