package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// campaign is a number of jobs that are planned at once. Tenants own them in turn: tenant 0, 1, 2, and from 0 again.
type campaign struct{ jobs, tenants int }

// The global limit of a campaign, and how many seconds of it are run. The cost of a job does not change after that.
const (
	campaignRate    = 2000 // a second
	campaignSeconds = 10
)

// pullsApart is how far apart a process' pulls are, as in the package worker.
const pullsApart = 50 * time.Millisecond

// campaigns plans campaigns of several sizes, and runs the first jobs of each.
func campaigns(ctx context.Context, b *bench) error {
	few, many := max(1, b.waiting/1000), max(1, b.waiting/10)
	all := []campaign{{many, few}, {many, many}, {b.waiting, few}, {b.waiting, many}, {b.waiting, b.waiting}}
	if b.full {
		huge := 10 * b.waiting
		all = append(all, campaign{huge, few}, campaign{huge, many}, campaign{huge, b.waiting})
	}
	most := campaign{all[len(all)-1].jobs, many}
	b.say("campaigns are planned while the throttle is paused; then one process runs the first %d s under %d/1s for all",
		campaignSeconds, campaignRate)
	b.say("and, per minute, twice a tenant's part of that. Without asynq, in calls of up to 64 jobs, one run each:")
	b.say("")
	b.say("| thousands of jobs | of tenants | MB at the peak | bytes per job | calls per job | µs of CPU per job " +
		"| planned, pulled, redeemed | jobs/s of one core | ms of CPU of a call: p99, longest |")
	b.say("|---|---|---|---|---|---|---|---|---|")
	cost := make(map[campaign]float64)
	for _, of := range all {
		is, err := of.run(ctx)
		if err != nil {
			return fmt.Errorf("%d jobs of %d tenants: %w", of.jobs, of.tenants, err)
		}
		took := slices.Sorted(slices.Values(slices.Concat(is.planned.took, is.pulled.took, is.redeemed.took)))
		b.say("| %g | %g | %.1f | %.0f | %.3f | %.0f | %.0f, %.0f, %.0f | %.0f | %.1f, %.1f |", float64(of.jobs)/1000,
			float64(of.tenants)/1000, is.peak/1e6, is.peak/float64(of.jobs), is.calls(), is.cpu(), is.planned.cpu, is.pulled.cpu,
			is.redeemed.cpu, 1e6/is.cpu(), micros(percentile(took, 0.99))/1000,
			micros(took[len(took)-1])/1000)
		cost[of] = is.cpu()
	}
	b.say("")
	b.most(fmt.Sprintf("CPU of a job of %d tenants, %d jobs to %d", many, most.jobs, many),
		cost[most]/cost[campaign{many, many}], 1.5)
	return b.withAsynq(ctx, campaign{many, few})
}

// costs are what a campaign needed of its server.
type costs struct {
	peak                      float64 // the most memory of the server, in bytes more than at the start
	planned, pulled, redeemed stage
}

// stage is what one stage of a job's life costs.
type stage struct {
	cpu, calls float64         // per job; cpu in µs of the server
	took       []time.Duration // CPU of each call
}

// take divides the calls of a script since the last take by a number of jobs, and forgets these calls.
func (t *timed) take(script string, jobs int) (is stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is.took = t.cpu[script]
	delete(t.cpu, script)
	var all time.Duration
	for _, took := range is.took {
		all += took
	}
	is.cpu, is.calls = micros(all)/float64(jobs), float64(len(is.took))/float64(jobs)
	return is
}

// cpu returns the CPU time of a job from its plan to its start.
func (c costs) cpu() float64 { return c.planned.cpu + c.pulled.cpu + c.redeemed.cpu }

// calls returns how many calls of scripts a job takes.
func (c costs) calls() float64 { return c.planned.calls + c.pulled.calls + c.redeemed.calls }

// run plans the campaign on a server of its own, and runs its first jobs.
func (of campaign) run(ctx context.Context) (is costs, err error) {
	err = withServer(ctx, func(s *server) error {
		client := s.client()
		defer client.Close() //nolint:errcheck // nothing is lost with it
		if err := warm(ctx, client); err != nil {
			return err
		}
		calls := &timed{server: s, cpu: make(map[string][]time.Duration)}
		client.AddHook(calls)
		tenant := throttle.PerMinute(max(1, int64(2*60*campaignRate/of.tenants)))
		th, err := open(client, "campaign", limits{tenant}, limits{throttle.PerSecond(campaignRate)}, nil)
		if err != nil {
			return err
		}
		l := &line{throttle: th, driver: th.Driver(), tenants: of.tenants, plan: true}
		before, err := s.memory(ctx, "used_memory:")
		if err != nil {
			return err
		}
		if err := l.fill(ctx, of.jobs); err != nil {
			return err
		}
		is.planned = calls.take("reserve", of.jobs)
		started := min(of.jobs, campaignRate*campaignSeconds)
		if err := l.run(ctx, started); err != nil {
			return err
		}
		is.pulled, is.redeemed = calls.take("pull", started), calls.take("reserve", started)
		peak, err := s.memory(ctx, "used_memory_peak:")
		is.peak = peak - before
		return err
	})
	return is, err
}

// warm makes a server load the scripts, so that their memory does not count as memory of jobs.
func warm(ctx context.Context, client *redis.Client) error {
	th, err := open(client, "warm", nil, nil, nil)
	if err != nil {
		return err
	}
	if err := ask(ctx, th, job("first", "another")); err != nil {
		return err
	}
	_, err = th.Driver().Pull(ctx)
	return err
}

// run pulls and redeems as one process of the package worker does, until this number of jobs has started.
func (l *line) run(ctx context.Context, jobs int) error {
	var booked []booking
	for jobs > 0 {
		pulled, err := l.driver.Pull(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		for _, r := range slices.Concat(pulled.Booked, pulled.Overdue) {
			booked = append(booked, bookingOf(r))
		}
		var started int
		if started, booked, err = l.redeem(ctx, booked); err != nil {
			return err
		}
		if jobs -= started; pulled.Full {
			continue
		}
		if err := sleep(ctx, pullsApart-time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// booking is a job that has a slot, and the time when the job asks for it.
type booking struct {
	job throttle.Job
	at  time.Time // this time, by the local clock
}

// brought returns a job as the package worker asks for it. The job asks half of its MaxWait before its slot.
func brought(id, tenant string) throttle.Job {
	j := job(id, tenant)
	j.MaxWait = worker.DefaultMaxWait
	return j
}

// untilBrought returns the time from now until a booked job asks for its slot.
func untilBrought(r throttle.Reservation) time.Duration { return r.Delay() - worker.DefaultMaxWait/2 }

func bookingOf(r throttle.Reservation) booking {
	return booking{brought(r.Job.ID, r.Job.Keys["tenant"]), time.Now().Add(untilBrought(r))}
}

// redeem asks for the slots of the jobs whose time has come. It returns how many of them have started, and the jobs
// that are still booked.
func (l *line) redeem(ctx context.Context, booked []booking) (started int, ahead []booking, err error) {
	var due []throttle.Job
	for _, one := range booked {
		if time.Until(one.at) > 0 {
			ahead = append(ahead, one)
		} else {
			due = append(due, one.job)
		}
	}
	for _, answer := range l.throttle.ReserveAll(ctx, due) {
		switch {
		case answer.Err != nil:
			return 0, nil, answer.Err
		case answer.Reservation.Outcome == throttle.Granted:
			started++
		case answer.Reservation.Outcome == throttle.Booked:
			ahead = append(ahead, bookingOf(answer.Reservation))
		}
	}
	return started, ahead, nil
}

// withAsynq plans a campaign with asynq on a second server, and prints what each of the two servers needs for a
// waiting job.
func (b *bench) withAsynq(ctx context.Context, of campaign) error {
	return twoServers(ctx, func(limiter, queue *server, decide, work *redis.Client) error {
		th, err := open(decide, "campaign", nil, limits{throttle.Per(1, time.Hour)}, nil)
		if err != nil {
			return err
		}
		client, err := worker.NewClient(th, work, tenantJob, nil)
		if err != nil {
			return err
		}
		all := make([]*asynq.Task, of.jobs)
		for i := range all {
			all[i] = tenantTask(i, 1000)
		}
		var own, other spent
		var ownBytes, otherBytes float64
		ownBytes, _, err = used(ctx, limiter, func() error {
			otherBytes, _, err = used(ctx, queue, func() error {
				own, err = limiter.during(ctx, func() error {
					other, err = queue.during(ctx, func() error {
						_, err := client.EnqueueAll(ctx, all)
						return err
					})
					return err
				})
				return err
			})
			return err
		})
		n := float64(of.jobs)
		b.say("%d tasks without payload, planned by EnqueueAll: the throttle's server has %.0f bytes of each and takes "+
			"%.0f µs of CPU, asynq's server %.0f bytes and %.0f µs", of.jobs, ownBytes/n, micros(own.cpu)/n, otherBytes/n,
			micros(other.cpu)/n)
		return err
	})
}
