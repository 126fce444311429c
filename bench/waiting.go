package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// few is how many jobs wait in line in the rows with few jobs. The rows with many jobs are compared with these.
const few = 100

// line is a throttle with jobs in line.
type line struct {
	throttle *throttle.Throttle
	driver   throttle.Driver
	tenants  int
	joined   int
	plan     bool // jobs are planned, as worker.Client plans them
}

// id returns an ID that is as long as the worker's IDs.
func (l *line) id(n int) string {
	return fmt.Sprintf("asynq:default/00000000-0000-7000-8000-%012d/0", n)
}

func (l *line) job(n int) throttle.Job {
	j := job(l.id(n), fmt.Sprintf("tenant-%d", n%l.tenants))
	j.Plan, j.Bounded = l.plan, l.plan
	return j
}

// fill lets jobs join, many at a time. The throttle is paused meanwhile, so that all of them wait.
func (l *line) fill(ctx context.Context, jobs int) error {
	if _, err := inspect.New(l.throttle).Pause(ctx, throttle.Global, "", time.Now().Add(time.Hour)); err != nil {
		return err
	}
	const most = 6400
	for jobs > 0 {
		some := make([]throttle.Job, min(jobs, most))
		for i := range some {
			some[i] = l.job(l.joined)
			l.joined++
		}
		for _, answer := range l.throttle.ReserveAll(ctx, some) {
			if answer.Err != nil {
				return answer.Err
			}
		}
		jobs -= len(some)
	}
	_, err := inspect.New(l.throttle).Resume(ctx, throttle.Global, "")
	return err
}

// steps are the steps of a job that waits.
var steps = []string{"joining the line", "being pulled", "being redeemed"}

// turn is how many jobs join together, are then pulled, and then start.
const turn = 200

// waiting compares what each step of a job in line costs, with few waiting jobs and with many.
func waiting(ctx context.Context, b *bench) error {
	return withAwakeServer(ctx, func(s *server, client *redis.Client) error {
		lines := make([]*line, 2)
		for i, jobs := range []int{few, b.waiting} {
			th, err := open(client, fmt.Sprintf("waiting-%d", jobs), nil, limits{throttle.PerSecond(1000)}, nil)
			if err != nil {
				return err
			}
			lines[i] = &line{throttle: th, driver: th.Driver(), tenants: 50}
			if err := lines[i].fill(ctx, jobs); err != nil {
				return err
			}
		}
		cpu := make(map[string][2][]float64)
		for range b.rounds {
			for i, l := range lines {
				took, err := l.turn(ctx, s)
				if err != nil {
					return err
				}
				for name, each := range took {
					all := cpu[name]
					all[i] = append(all[i], each)
					cpu[name] = all
				}
			}
		}
		b.say("server CPU µs per job (1 goroutine, awake), with %d in line and with %d:", few, b.waiting)
		for _, step := range steps {
			short, long := median(cpu[step][0]), median(cpu[step][1])
			b.say("  %-18s %8.1f %8.1f", step, short, long)
			b.most(step+", with many in line to few", long/short, 1.2)
		}
		return nil
	})
}

// turn lets jobs join, be pulled and start, and returns what each step cost the server.
func (l *line) turn(ctx context.Context, s *server) (map[string]float64, error) {
	took := make(map[string]float64)
	// The jobs of the last turn must have gone.
	if err := l.settled(ctx); err != nil {
		return nil, err
	}
	is, err := s.during(ctx, func() error {
		for range turn {
			if _, err := l.throttle.Reserve(ctx, l.job(l.joined)); err != nil {
				return err
			}
			l.joined++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	took[steps[0]] = micros(is.cpu) / turn
	var booked []throttle.Reservation
	is, err = s.during(ctx, func() error {
		booked, err = l.pull(ctx, turn)
		return err
	})
	if err != nil {
		return nil, err
	}
	took[steps[1]] = micros(is.cpu) / float64(len(booked))
	if err := sleep(ctx, booked[len(booked)-1].Delay()+50*time.Millisecond); err != nil {
		return nil, err
	}
	is, err = s.during(ctx, func() error {
		for _, r := range booked {
			if err := ask(ctx, l.throttle, r.Job); err != nil {
				return err
			}
		}
		return nil
	})
	took[steps[2]] = micros(is.cpu) / float64(len(booked))
	return took, err
}

// settled waits until nothing is booked and the limit is free.
func (l *line) settled(ctx context.Context) error {
	for range 200 {
		usage, err := inspect.New(l.throttle).Usage(ctx, throttle.Global, "")
		if err != nil || usage.Limits[0].Booked == 0 && usage.Limits[0].Used == 0 {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("jobs are booked and do not end")
}

// pull pulls until at least the given number of jobs is booked.
func (l *line) pull(ctx context.Context, jobs int) (booked []throttle.Reservation, err error) {
	for range 20 * jobs {
		pulled, err := l.driver.Pull(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range pulled.Booked {
			r.Job.Weight = 1
			booked = append(booked, r)
		}
		if len(booked) >= jobs {
			return booked, nil
		}
	}
	return nil, fmt.Errorf("%d jobs were booked, want %d", len(booked), jobs)
}
