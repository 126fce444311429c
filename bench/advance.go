package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// busy is a load of jobs at a fixed rate: the tenants take turns, and each job comes to the next process.
type busy struct {
	window             time.Duration
	processes, tenants int
}

const busyRate = 4000 // jobs in a second, of all processes

var busySettings = []busy{
	{10 * time.Second, 1, 1}, {10 * time.Second, 4, 1},
	{time.Minute, 1, 1}, {time.Minute, 4, 1}, {time.Minute, 16, 1}, {time.Minute, 4, 20},
	{time.Hour, 1, 1}, {time.Hour, 16, 1}, {time.Hour, 4, 20},
}

func (s busy) String() string {
	return fmt.Sprintf("windows of %s, %d processes, %d tenants", s.window, s.processes, s.tenants)
}

// perJob has the figures per job, one entry per round.
type perJob struct{ cpu, calls, p50, p99, charged []float64 }

// advance compares jobs of busy lanes with Options.Advance and without.
func advance(ctx context.Context, b *bench) error {
	return withAwakeServer(ctx, func(s *server, client *redis.Client) error {
		b.say("%d jobs a second of 16 goroutines, awake; each figure without Advance, then with it", busyRate)
		var last [2]perJob
		for _, setting := range busySettings {
			last = [2]perJob{}
			for round := range b.rounds {
				for i, lasts := range []time.Duration{0, time.Second} {
					name := fmt.Sprintf("busy-%d-%d-%d-%d-%d", setting.window, setting.processes, setting.tenants, round, i)
					if err := b.busy(ctx, s, client, setting, name, lasts, &last[i]); err != nil {
						return fmt.Errorf("%s: %w", setting, err)
					}
				}
			}
			b.say("  %-42s CPU %5.1f %5.2f µs; calls %.3f %.3f; p50 %4.0f %5.1f µs; p99 %5.0f %5.0f µs; charged %.3f",
				setting.String()+":", median(last[0].cpu), median(last[1].cpu), median(last[0].calls), median(last[1].calls),
				median(last[0].p50), median(last[1].p50), median(last[0].p99), median(last[1].p99), median(last[1].charged))
			if setting == (busy{time.Minute, 1, 1}) {
				b.most("µs of server CPU of a busy lane's job, one process", median(last[1].cpu), 2)
				b.most("µs until its answer, median", median(last[1].p50), 5)
			}
		}
		return nil
	})
}

// busy lets jobs come for some time, and notes what one job costs. The work of an idle server is subtracted.
func (b *bench) busy(ctx context.Context, s *server, client *redis.Client, setting busy, name string,
	lasts time.Duration, of *perJob) error {
	limit := throttle.Per(100_000_000, setting.window)
	processes := make([]*throttle.Throttle, setting.processes)
	for i := range processes {
		th, err := open(client, name, limits{limit}, limits{limit}, &throttle.Options{Advance: lasts})
		if err != nil {
			return err
		}
		processes[i] = th
	}
	n := b.calls
	took := make([]time.Duration, n)
	paced := func(do func(i int) error) (spent, error) {
		began := time.Now()
		return s.during(ctx, func() error {
			_, err := together(n, 16, func(i int) error {
				if err := sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Second/busyRate))); err != nil {
					return err
				}
				return do(i)
			})
			return err
		})
	}
	idle, err := paced(func(int) error { return nil })
	if err != nil {
		return err
	}
	is, err := paced(func(i int) error {
		began := time.Now()
		tenant := "tenant-" + strconv.Itoa(i/len(processes)%setting.tenants)
		err := ask(ctx, processes[i%len(processes)], job("busy-"+strconv.Itoa(i), tenant))
		took[i] = time.Since(began)
		return err
	})
	if err != nil {
		return err
	}
	usage, err := inspect.New(processes[0]).Usage(ctx, throttle.Global, "")
	if err != nil {
		return err
	}
	slices.Sort(took)
	of.cpu = append(of.cpu, micros(is.cpu-idle.cpu)/float64(n))
	of.calls = append(of.calls, is.evalshas/float64(n))
	of.p50, of.p99 = append(of.p50, micros(took[n/2])), append(of.p99, micros(took[n*99/100]))
	of.charged = append(of.charged, float64(usage.Limits[0].Used)/float64(n))
	return nil
}
