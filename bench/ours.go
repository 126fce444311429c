package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The rows that goals are set for.
const (
	rowReserve   = "Reserve, tenant and global, one limit each"
	rowReserve10 = "Reserve, tenant and global, one limit each, weight 10"
	rowTwoLimits = "Reserve, tenant and global, two limits each"
	rowBooking   = "Reserve booking, 100 jobs booked already (exact)"
)

func ours() []row {
	tenant, global := throttle.PerMinute(tenantUnits), throttle.PerMinute(globalUnits)
	return []row{
		{rowReserve, inTurn(reserve(1, limits{tenant}, limits{global}))},
		{rowReserve10, inTurn(reserve(10, limits{tenant}, limits{global}))},
		{"Reserve, tenant and global, one limit each, exact tenant", inTurn(reserve(1,
			limits{{Units: tenantUnits, Window: time.Minute, Precision: throttle.Exact}}, limits{global}))},
		{rowTwoLimits, inTurn(reserve(1,
			limits{tenant, throttle.PerDay(100 * tenantUnits)}, limits{global, throttle.PerDay(100 * globalUnits)}))},
		{rowBooking, booking(throttle.PerHour(10))},
		{"Reserve booking, 100 jobs booked already (sub-windows)", booking(throttle.PerHour(120))},
		{"Reserve redeeming a booking on time", redeem},
	}
}

type limits = []throttle.Limit

// open returns a throttle of tenants and all of them together. Its timeout is
// long, so that a disturbed machine makes a round slow and not wrong, and its
// calendar without end, so that jobs are booked however many there are.
func open(m *meter, name string, tenant, global limits) (*throttle.Throttle, error) {
	return throttle.New(name, m.client, []throttle.Scope{
		{Name: "tenant", Limits: tenant},
		{Name: throttle.Global, Limits: global},
	}, &throttle.Options{Timeout: 10 * time.Second, Lookahead: throttle.MaxWindow})
}

// reserve decides for new jobs that may all start at once.
func reserve(weight int64, tenant, global limits) func(m *meter) func(ctx context.Context, i int, tenant string) error {
	return func(m *meter) func(ctx context.Context, i int, tenant string) error {
		t, err := open(m, "bench", tenant, global)
		return func(ctx context.Context, i int, tenant string) error {
			if err != nil {
				return err
			}
			return ask(ctx, t, job("job-"+strconv.Itoa(i), tenant, weight), throttle.Granted)
		}
	}
}

func job(id, tenant string, weight int64) throttle.Job {
	return throttle.Job{ID: id, Weight: weight, Keys: map[string]string{"tenant": tenant}}
}

// ask reserves and checks that the outcome is the one the row is about.
func ask(ctx context.Context, t *throttle.Throttle, job throttle.Job, want throttle.Outcome) error {
	got, err := t.Reserve(ctx, job)
	if err == nil && got.Outcome != want {
		err = fmt.Errorf("job %s was %s at %s, want %s", job.ID, got.Outcome, got.Start, want)
	}
	return err
}

// booking books one job in each of many throttles, in which a full tenant has
// 100 jobs booked, and cancels it again, unmeasured, so that it stays 100.
func booking(tenant throttle.Limit) func(context.Context, *meter, int) error {
	return func(ctx context.Context, m *meter, calls int) error {
		const booked, most = 100, 100
		throttles := make([]*throttle.Throttle, min(most, calls))
		for i := range throttles {
			t, err := open(m, "bench-"+strconv.Itoa(i), limits{tenant}, limits{throttle.PerMinute(globalUnits)})
			if err != nil {
				return err
			}
			throttles[i] = t
			for n := range tenant.Units {
				if err := ask(ctx, t, job(fmt.Sprintf("runs-%d", n), "acme", 1), throttle.Granted); err != nil {
					return err
				}
			}
			for n := range booked {
				if err := ask(ctx, t, job(fmt.Sprintf("waits-%d", n), "acme", 1), throttle.Booked); err != nil {
					return err
				}
			}
		}
		for done := 0; done < calls; done += len(throttles) {
			another := job("another-"+strconv.Itoa(done), "acme", 1)
			batch := throttles[:min(len(throttles), calls-done)]
			if err := m.measure(ctx, len(batch), func(i int) error {
				return ask(ctx, batch[i], another, throttle.Booked)
			}); err != nil {
				return err
			}
			for _, t := range batch {
				if cancelled, err := t.Cancel(ctx, another); err != nil || !cancelled {
					return fmt.Errorf("cancel: %t, %w", cancelled, err)
				}
			}
		}
		return nil
	}
}

// redeem asks again for booked jobs once their slots have come. The jobs of a
// batch fill a window, wait for its end and start then; a batch is as large as
// a slow machine makes within half a window.
func redeem(ctx context.Context, m *meter, calls int) error {
	const perTenant, batch, window = 5, 1000, time.Second
	limit := throttle.Limit{Units: perTenant, Window: window}
	t, err := open(m, "bench", limits{limit}, limits{throttle.PerMinute(globalUnits)})
	if err != nil {
		return err
	}
	for done := 0; done < max(1, calls/5); done += batch {
		n := min(batch, max(1, calls/5)-done)
		name := func(kind string, i int) throttle.Job {
			i += done
			return job(kind+strconv.Itoa(i), "tenant-"+strconv.Itoa(i/perTenant), 1)
		}
		for i := range n {
			if err := ask(ctx, t, name("first-", i), throttle.Granted); err != nil {
				return err
			}
		}
		var last throttle.Reservation
		for i := range n {
			if last, err = t.Reserve(ctx, name("second-", i)); err != nil {
				return err
			}
		}
		if err := sleep(ctx, last.Delay()); err != nil {
			return err
		}
		if err := m.measure(ctx, n, func(i int) error {
			return ask(ctx, t, name("second-", i), throttle.Granted)
		}); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
