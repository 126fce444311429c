package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPlanOfABookedJobTakesNothing: who plans a job that is booked already, such as a program
// that is started again and enqueues its campaign anew, is told its slot, also when that has
// come. The start is for who brings the job.
func TestPlanOfABookedJobTakesNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client,
			[]throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Per(1, time.Second)}}}, nil))
		ask := func(after time.Duration, id string, plan bool) throttle.Reservation {
			r, err := s.Reserve(dawn.Add(after), throttle.Job{ID: id, Weight: 1, Keys: of("acme"), Plan: plan})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		ask(0, "first", false)
		slot := ask(0, "second", false)
		if slot.Outcome != throttle.Booked || !slot.Start.Equal(dawn.Add(time.Second)) {
			t.Fatalf("the second got %+v", slot)
		}
		for _, after := range []time.Duration{0, time.Second, 2 * time.Second} {
			if r := ask(after, "second", true); r.Outcome != throttle.Booked || !r.Start.Equal(slot.Start) {
				t.Errorf("planned after %s it got %s at %s, want its slot", after, r.Outcome, r.Start)
			}
		}
		if r := ask(2*time.Second, "second", false); r.Outcome != throttle.Granted {
			t.Errorf("who brings it got %+v", r)
		}
	})
}
