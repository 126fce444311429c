package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestF23_F24_ClockSteps drives a throttle at full load over a step of Redis'
// clock. Whatever the clock says, jobs really start after their delay. The test counts starts by a clock
// that does not step: no window is over its limit after a step back, and after a step forward a window has at
// most twice its limit. No delay is negative, and jobs soon start again.
func TestF23_F24_ClockSteps(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		step    time.Duration
		resumes time.Duration // by the clock after the step
		windows int64         // how many times its limit a window around the step may hold
	}{
		"F23 back by 20 s":   {-20 * time.Second, 30 * time.Second, 1},
		"F23 back by 30 s":   {-30 * time.Second, 40 * time.Second, 1},
		"F23 back by 31 s":   {-31 * time.Second, 11 * time.Second, 1},
		"F23 back by 10 min": {-10 * time.Minute, 11 * time.Second, 1},
		"F24 on by 1 h":      {time.Hour, 0, 2},
	}
	for name, test := range tests {
		for _, precision := range []time.Duration{throttle.Exact, time.Second} {
			t.Run(fmt.Sprintf("%s, %s", name, precision), func(t *testing.T) {
				t.Parallel()
				onServers(t, func(t *testing.T, client *redis.Client) {
					limit := throttle.Limit{Units: 20, Window: 10 * time.Second, Precision: precision}
					scopes := tenantAndGlobal(limit, limit)
					s := newScripted(newThrottle(t, client, scopes, nil))
					now := time.UnixMicro(1_800_000_000_000_000)
					began, really := now, now // really is the time by a clock that does not step
					var starts []throttletest.Start
					load := func(id string, d time.Duration) (first time.Time) {
						for end := really.Add(d); really.Before(end); really = really.Add(
							longtest.Of(340*time.Millisecond, 170*time.Millisecond)) {
							now := now.Add(really.Sub(began))
							got, err := s.Reserve(now, throttle.Job{ID: fmt.Sprint(id, now.UnixMicro()), Weight: 3, Keys: of("a")})
							switch {
							case err != nil:
								t.Fatalf("%s at %s: %v", id, now, err)
							case got.Delay() < 0 || got.Start.Before(got.Now):
								t.Fatalf("%s at %s: got %+v, want no start in the past", id, now, got)
							case got.Outcome == throttle.Granted:
								starts = append(starts, throttletest.Start{At: really.Add(got.Delay()), Weight: 3, Keys: of("a")})
								if first.IsZero() {
									first = really
								}
							default: // the job will not come back
								if _, err := s.Cancel(now, got.Job); err != nil {
									t.Fatal(err)
								}
							}
						}
						return first
					}
					load("before", 25*time.Second)
					now = now.Add(test.step)
					stepped := really
					first := load("after", 60*time.Second)
					if first.IsZero() || first.Sub(stepped) > test.resumes+time.Second {
						t.Errorf("the first start is %s after the step, want within %s", first.Sub(stepped), test.resumes)
					}
					for _, over := range throttletest.Check(scopes, starts) {
						if over.Units > test.windows*limit.Units {
							t.Errorf("window over its limit: %s", over)
						}
					}
					if len(starts) < 30 {
						t.Errorf("only %d starts: this test has tested nothing", len(starts))
					}
				})
			})
		}
	}
}

// TestF25_OwnClockDoesNotMatter: the instants in an answer are Redis', whatever
// this process' clock says.
func TestF25_OwnClockDoesNotMatter(t *testing.T) {
	t.Parallel()
	server, client := expiringServer(t)
	far := time.Date(2040, 2, 29, 12, 0, 0, 123_456_000, time.UTC)
	server.SetTime(far)
	th := newThrottle(t, client, globalScope(throttle.PerMinute(1)), nil)
	got := reserve(t, th, throttle.Job{ID: "1", Weight: 1})
	if !got.Now.Equal(far) || !got.Start.Equal(far) || got.Delay() != 0 {
		t.Errorf("got now %s and start %s, want %s", got.Now, got.Start, far)
	}
	got = reserve(t, th, throttle.Job{ID: "2", Weight: 1})
	if !got.Start.Equal(far.Add(time.Minute)) || got.Delay() != time.Minute {
		t.Errorf("got start %s after %s, want %s", got.Start, got.Delay(), far.Add(time.Minute))
	}
	// A deadline is an instant of this process' clock: it says how long the job may still take to start.
	_, err := th.Reserve(t.Context(), throttle.Job{ID: "3", Weight: 1, Deadline: time.Now().Add(time.Hour)})
	if err != nil {
		t.Errorf("a deadline an hour off by this clock: got %v, want a slot in two minutes", err)
	}
}
