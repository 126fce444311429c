package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// raisedExact raises limits whose ledgers are exact. Half of the jobs use up the window within half a second, and the
// other half waits. These jobs are pulled when the window has passed.
func raisedExact(ctx context.Context, _ *bench, client *redis.Client) error {
	const window, jobs = 4 * time.Second, 1000
	th, err := open(client, "exactly", limits{throttle.Per(100, window)}, limits{throttle.Per(100, window)}, nil)
	if err != nil {
		return err
	}
	if err := ask(ctx, th, job("first", "acme")); err != nil {
		return err
	}
	raised := limits{throttle.Per(jobs, window)}
	if err := errors.Join(inspect.New(th).SetLimits(ctx, throttle.Global, "", raised),
		inspect.New(th).SetLimits(ctx, "tenant", "", raised)); err != nil {
		return err
	}
	began := time.Now()
	for n := range 2 * jobs {
		if _, err := th.Reserve(ctx, job("exactly-"+strconv.Itoa(n), "acme")); err != nil {
			return err
		}
	}
	if err := sleep(ctx, time.Until(began.Add(window-500*time.Millisecond))); err != nil {
		return err
	}
	return drive(ctx, th, 2*time.Second)
}

// longTails returns a setting that starts 950 jobs under a number of scopes, each job in a sub-window of its own. It
// renews half of them, and ends nearly all.
func longTails(scopes int) func(ctx context.Context, b *bench, client *redis.Client) error {
	return func(ctx context.Context, _ *bench, client *redis.Client) error {
		const places, lease = 950, 20 * time.Second // the last job starts before the first lease ends
		all := make([]throttle.Scope, scopes)
		keys := make(map[string]string)
		for i := range all {
			all[i] = throttle.Scope{Name: "scope" + strconv.Itoa(i),
				Limits: limits{{Units: places, Running: true, Lease: lease}}}
			keys[all[i].Name] = "acme"
		}
		th, err := throttle.New(fmt.Sprintf("tails-%d", scopes), client, all, &throttle.Options{Timeout: time.Minute})
		if err != nil {
			return err
		}
		var running []throttle.Reservation
		began := time.Now()
		for n := range places {
			j := throttle.Job{ID: "tail-" + strconv.Itoa(n), Weight: 1, Keys: keys}
			r, err := th.Reserve(ctx, j)
			if err != nil {
				return err
			}
			running = append(running, r)
			next := began.Add(time.Duration(n+1) * lease / 1000) // each in a sub-window of its own
			if err := sleep(ctx, time.Until(next)); err != nil {
				return err
			}
		}
		for n := 0; n+64 <= places; n += 128 {
			if _, err := th.Renew(ctx, running[n:n+64]...); err != nil {
				return err
			}
		}
		for n := 0; n+64 <= places; n += 64 {
			if _, err := th.Done(ctx, running[n:n+64]...); err != nil {
				return err
			}
		}
		return nil
	}
}

// busyTenants lets a hundred tenants use up their windows. Then it asks for forecasts and for the usage of all.
func busyTenants(ctx context.Context, _ *bench, client *redis.Client) error {
	const tenants, units = 100, 100
	th, err := open(client, "busy", limits{throttle.PerMinute(units), throttle.PerHour(units)},
		limits{throttle.PerSecond(100_000)}, nil)
	if err != nil {
		return err
	}
	jobs := make([]throttle.Job, tenants)
	for n := range units + 1 {
		for i := range jobs {
			jobs[i] = job(fmt.Sprintf("busy-%d-%d", n, i), "tenant-"+strconv.Itoa(i))
		}
		for _, answer := range th.ReserveAll(ctx, jobs) {
			if answer.Err != nil {
				return answer.Err
			}
		}
	}
	for i := range jobs {
		jobs[i] = job("busy-"+strconv.Itoa(i), "tenant-"+strconv.Itoa(i))
	}
	for range 5 {
		if _, err := inspect.New(th).Forecast(ctx, jobs); err != nil {
			return err
		}
		if _, err := inspect.New(th).UsageAll(ctx, "tenant"); err != nil {
			return err
		}
	}
	return nil
}

// longIDs asks for jobs with IDs of nearly the greatest length that is allowed, and with longer ones.
func longIDs(ctx context.Context, _ *bench, client *redis.Client) error {
	th, err := open(client, "ids", limits{throttle.PerMinute(100)}, limits{throttle.PerSecond(1000)}, nil)
	if err != nil {
		return err
	}
	for _, n := range []int{1, 16, 64} {
		for _, long := range []int{1000, 4096, 1 << 20} {
			jobs := make([]throttle.Job, n)
			for i := range jobs {
				jobs[i] = job(strings.Repeat("x", long-3)+fmt.Sprintf("%03d", i), "acme")
			}
			for _, answer := range th.ReserveAll(ctx, jobs) {
				if answer.Err != nil && !errors.As(answer.Err, new(*throttle.InvalidJobError)) {
					return answer.Err
				}
			}
		}
	}
	return nil
}

// manyLimits makes jobs of all weights wait under as many limits as a throttle may have.
func manyLimits(ctx context.Context, _ *bench, client *redis.Client) error {
	const scopes, windows, units = 8, 8, 100
	all := make([]throttle.Scope, scopes)
	keys := make(map[string]string)
	for i := range all {
		all[i].Name = "scope" + strconv.Itoa(i)
		keys[all[i].Name] = "acme"
		for w := range windows {
			all[i].Limits = append(all[i].Limits, throttle.Per(units, time.Duration(2+i+scopes*w)*time.Second))
		}
	}
	th, err := throttle.New("limits", client, all, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		return err
	}
	weights := []int64{1, 1, 1, 90, 1, 40}
	for n := range 1000 {
		j := throttle.Job{ID: "limits-" + strconv.Itoa(n), Weight: 1, Keys: keys}
		if n > units {
			j.Weight = weights[n%len(weights)]
		}
		if _, err := th.Reserve(ctx, j); err != nil {
			return err
		}
	}
	return errors.Join(drive(ctx, th, 3*time.Second), look(ctx, th, "scope0", "acme", time.Second))
}

// raisedFar raises exact limits that count a start already. After many more starts, heavy jobs come.
func raisedFar(ctx context.Context, _ *bench, client *redis.Client) error {
	const starts = 60_000
	th, err := open(client, "far", limits{throttle.PerHour(100)}, limits{throttle.PerHour(100)}, nil)
	if err != nil {
		return err
	}
	if _, err := th.Reserve(ctx, job("far", "acme")); err != nil {
		return err
	}
	for _, scope := range []string{"tenant", throttle.Global} {
		if err := inspect.New(th).SetLimits(ctx, scope, "", limits{throttle.PerHour(200_000)}); err != nil {
			return err
		}
	}
	for n := range starts {
		if err := ask(ctx, th, job("far-"+strconv.Itoa(n), "acme")); err != nil {
			return err
		}
	}
	for n := range 10 {
		heavy := job("heavy-"+strconv.Itoa(n), "acme")
		heavy.Weight = 150_000
		if _, err := th.Reserve(ctx, heavy); err != nil {
			return err
		}
	}
	return errors.Join(drive(ctx, th, time.Second), look(ctx, th, "tenant", "acme", time.Hour))
}

// manyStanding makes many tenants wait with a job of a lower priority each, so that each has a tag under the global
// key.
func manyStanding(ctx context.Context, b *bench, client *redis.Client) error {
	th, err := open(client, "standing", limits{throttle.PerSecond(100)}, limits{throttle.PerHour(100)}, nil)
	if err != nil {
		return err
	}
	jobs := make([]throttle.Job, b.waiting)
	for n := range jobs {
		jobs[n] = job("standing-"+strconv.Itoa(n), "tenant-"+strconv.Itoa(n))
		jobs[n].Priority = 1
	}
	for _, answer := range th.ReserveAll(ctx, jobs) {
		if answer.Err != nil {
			return answer.Err
		}
	}
	// A forecast reads the first pages, and learns from them that it would have to read too many jobs.
	_, _ = inspect.New(th).Forecast(ctx, []throttle.Job{job("another", "acme")})
	return errors.Join(drive(ctx, th, time.Second), look(ctx, th, throttle.Global, "", time.Hour))
}
