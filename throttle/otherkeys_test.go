package throttle_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestBookedUnderOtherKeys: a job that stood in one lane asks again with another key, and is
// the first of two lanes then. One pull books it once, and has nothing left to do.
func TestBookedUnderOtherKeys(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := newScripted(newThrottle(t, client, tenantAndGlobal(throttle.PerHour(100), throttle.PerHour(1)),
			&throttle.Options{Lookahead: time.Second}))
		now := time.Unix(1_800_000_000, 0)
		for _, job := range []throttle.Job{
			{ID: "runs", Weight: 1, Keys: of("a")},
			{ID: "before", Weight: 1, Keys: of("a")},
			{ID: "moves", Weight: 1, Keys: of("a")},
			{ID: "moves", Weight: 1, Keys: of("b")},
		} {
			if _, err := s.Reserve(now, job); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SetMode(now, throttle.Global, throttle.Off, time.Time{}); err != nil {
			t.Fatal(err)
		}
		pulled, err := s.Pull(now.Add(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		var booked []string
		for _, r := range pulled.Booked {
			booked = append(booked, r.Job.ID)
		}
		slices.Sort(booked)
		if !slices.Equal(booked, []string{"before", "moves"}) || !pulled.Next.After(pulled.Now) {
			t.Errorf("booked %v, and looked at again %s later", booked, pulled.Next.Sub(pulled.Now))
		}
	})
}
