package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPriorityIsTold: a waiting job's priority is known by its lane, by the answer of a pull, and
// by its ID; a forecast knows which jobs come first.
func TestPriorityIsTold(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		ctx := t.Context()
		limit := throttle.Limit{Units: 10, Window: 2 * time.Second}
		th := published(t, client, "priority-"+nameOf(t), tenantAndGlobal(limit, throttle.PerHour(100_000)),
			throttle.Options{})
		job := func(id string, priority int) throttle.Job {
			return throttle.Job{ID: id, Weight: 1, Keys: of("a b"), Priority: priority}
		}
		for i := range 100 {
			if _, err := th.Reserve(ctx, job(fmt.Sprint("batch", i), 2)); err != nil {
				t.Fatal(err)
			}
		}
		asked, err := th.Reserve(ctx, job("asked", 0))
		if err != nil || asked.Outcome != throttle.Waiting {
			t.Fatalf("%+v, %v", asked, err)
		}
		lanes, err := inspect.New(th).Lanes(ctx)
		if err != nil || len(lanes) != 2 || lanes[0].Priority != 2 || lanes[0].Flow != "a b" ||
			lanes[0].Jobs != 90 || lanes[1].Priority != 0 || lanes[1].Jobs != 1 {
			t.Errorf("lanes: %+v, %v", lanes, err)
		}
		first, err := inspect.New(th).Explain(ctx, job("asked", 0))
		byID, err2 := inspect.New(th).ExplainID(ctx, "batch99")
		if err != nil || err2 != nil || first.Expected.Sub(first.Now) > 4*time.Second || byID.Before != 89 ||
			byID.Expected.Sub(byID.Now) < 15*time.Second {
			t.Errorf("%s\n%s\n%v, %v", first, byID, err, err2)
		}
		forecast, err := inspect.New(th).Forecast(ctx, []throttle.Job{job("", 0), job("", 2)})
		if err != nil || forecast.Starts[0].Sub(forecast.Now) > 4*time.Second ||
			forecast.Starts[1].Sub(forecast.Now) < 15*time.Second {
			t.Errorf("%+v, %v", forecast, err)
		}
		var booked []string
		for len(booked) < 3 {
			pulled, err := th.Driver().Pull(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range pulled.Booked {
				booked = append(booked, r.Job.ID)
				if want := map[bool]int{true: 0, false: 2}[r.Job.ID == "asked"]; r.Job.Priority != want ||
					r.Job.Keys["tenant"] != "a b" {
					t.Errorf("%s is booked with %+v", r.Job.ID, r.Job)
				}
			}
		}
		if !slices.Equal(booked[:2], []string{"asked", "batch10"}) {
			t.Errorf("booked %v", booked)
		}
	})
}
