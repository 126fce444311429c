package throttle_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestPassedDeadlineIsRefused: a job whose deadline has passed is refused whatever room there is, whether
// it is new, planned, booked or in line, and is charged nothing. A job whose deadline is now starts.
func TestPassedDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := globalScope(throttle.PerSecond(3))
		options := throttle.Options{Lookahead: time.Second}
		for name, s := range map[string]throttletest.Subject{
			"scripts": newScripted(newThrottle(t, client, scopes, &options)), "model": throttletest.NewModel(scopes, options),
		} {
			job := func(id string) throttle.Job { return throttle.Job{ID: id, Weight: 1} }
			refused := func(at, deadline time.Duration, job throttle.Job) {
				t.Helper()
				job.Deadline = dawn.Add(deadline)
				r, err := s.Reserve(dawn.Add(at), job)
				var late *throttle.DeadlineError
				if !errors.As(err, &late) || !late.Deadline.Equal(job.Deadline) || late.Start.Before(dawn.Add(at)) {
					t.Errorf("%s: %s at %s, until %s: %+v, %v; want a *DeadlineError", name, job.ID, at, deadline, r, err)
				}
			}
			for i := range 20 {
				refused(0, -5*time.Hour, job(fmt.Sprint("old", i)))
			}
			plan := job("plan")
			plan.Plan = true
			refused(0, -time.Microsecond, plan)
			comes := func(at time.Duration, job throttle.Job, want throttle.Outcome) {
				t.Helper()
				if r, err := s.Reserve(dawn.Add(at), job); err != nil || r.Outcome != want {
					t.Errorf("%s: %s at %s: %s, %v; want it %s", name, job.ID, at, r.Outcome, err, want)
				}
			}
			now := job("now")
			now.Deadline = dawn
			comes(0, now, throttle.Granted)
			for i := range 2 {
				comes(0, job(fmt.Sprint("first", i)), throttle.Granted)
			}
			for i := range 3 {
				comes(0, job(fmt.Sprint("booked", i)), throttle.Booked)
			}
			comes(time.Millisecond, job("in line"), throttle.Waiting)
			comes(2*time.Millisecond, job("behind"), throttle.Waiting)
			refused(500*time.Millisecond, 400*time.Millisecond, job("in line"))
			refused(time.Second, 999*time.Millisecond, job("booked0"))
			comes(time.Second, job("booked1"), throttle.Granted)
			pulled, err := s.Pull(dawn.Add(time.Second))
			if err != nil || len(pulled.Booked) != 1 || pulled.Booked[0].Job.ID != "behind" ||
				!pulled.Booked[0].Start.Equal(dawn.Add(time.Second)) {
				t.Errorf("%s: pulled %+v, %v; want the job that still waits, in the place of the one refused", name,
					pulled.Booked, err)
			}
		}
	})
}

// TestDeadline: a job that would start too late gets no slot, and the error says when
// it could have started and what it would have waited for.
func TestDeadline(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		limit := throttle.PerMinute(1)
		th := newThrottle(t, client, globalScope(limit), nil)
		s := newScripted(th)
		now := time.UnixMicro(1_800_000_000_000_000)
		if _, err := s.Reserve(now, throttle.Job{ID: "1", Weight: 1, Deadline: now}); err != nil {
			t.Fatalf("deadline now, room now: got %v", err)
		}
		deadline := now.Add(59 * time.Second)
		unchanged(t, client, th, func() {
			_, err := s.Reserve(now, throttle.Job{ID: "2", Weight: 1, Deadline: deadline})
			var late *throttle.DeadlineError
			if !errors.As(err, &late) {
				t.Fatalf("got %v, want a *DeadlineError", err)
			}
			if late.Job != "2" || !late.Deadline.Equal(deadline) || !late.Start.Equal(now.Add(time.Minute)) ||
				late.Hold == nil || late.Hold.Limit != limit {
				t.Errorf("got %+v with %+v, want start %s, held by %s", late, late.Hold, now.Add(time.Minute), limit)
			}
		})
		got, err := s.Reserve(now, throttle.Job{ID: "2", Weight: 1, Deadline: now.Add(time.Minute)})
		if err != nil || got.Outcome != throttle.Booked {
			t.Errorf("deadline at the slot: got %v, %v; want booked", got.Outcome, err)
		}
	})
}
