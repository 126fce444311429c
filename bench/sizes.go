package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// sizeKeys is how many scope keys have each limit.
const sizeKeys = 100

// sizeSteps is the number of steps in which a limit is filled, one for each hundredth of its window.
const sizeSteps = 100

// size is one limit, in both limiters. The cost of a limit depends on its units and on how much of its window has
// charges, not on the length of the window. So all windows here have the same length, short enough to fill.
type size struct {
	name     string
	units    int64
	throttle *throttle.Throttle
	rate     *redis_rate.Limiter
	window   time.Duration

	ours, theirs sizeFigures
}

// sizeFigures are the figures of one limiter under one limit, one entry per round.
type sizeFigures struct {
	cpu     []float64 // µs of the server, per decision
	bytes   float64   // per scope key
	refused int
	ratio   []float64 // cpu divided by that of the smallest limit in the same round
}

var sizes = []struct {
	name  string
	units int64
}{{"10 a second", 10}, {"1,000 a minute", 1000}, {"70,000 a day", 70_000}, {"1,000,000 a month", 1_000_000}}

// sizesOfLimits compares full limits of few and of many units, beside redis_rate.
func sizesOfLimits(ctx context.Context, b *bench) error {
	return withAwakeServer(ctx, func(s *server, client *redis.Client) error {
		window := max(2*time.Second, time.Duration(b.calls)*5*time.Millisecond/2)
		all := make([]*size, len(sizes))
		for i, of := range sizes {
			th, err := open(client, "size-"+strconv.FormatInt(of.units, 10), limits{throttle.Per(of.units, window)}, nil, nil)
			if err != nil {
				return err
			}
			all[i] = &size{name: of.name, units: of.units, throttle: th, rate: redis_rate.NewLimiter(client), window: window}
		}
		if err := fill(ctx, all, window); err != nil {
			return err
		}
		for _, of := range all {
			if err := of.measureBytes(ctx, client); err != nil {
				return err
			}
		}
		for range b.rounds {
			if err := b.roundOfSizes(ctx, s, all); err != nil {
				return err
			}
		}
		b.printSizes(all)
		return nil
	})
}

// fill charges each scope key, in each hundredth of the window, a hundredth of its limit.
func fill(ctx context.Context, all []*size, window time.Duration) error {
	for range sizeSteps {
		began := time.Now()
		for _, of := range all {
			if err := of.topUp(ctx, 1); err != nil {
				return err
			}
		}
		if err := sleep(ctx, window/sizeSteps-time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// topUp charges hundredths of the limit, as many as steps, to each scope key, as long as there is room. In
// redis_rate, whose bucket refills all the time, it charges everything that is there.
func (of *size) topUp(ctx context.Context, steps int) error {
	part := max(1, of.units/sizeSteps)
	for range steps {
		jobs := make([]throttle.Job, sizeKeys)
		for i := range jobs {
			jobs[i] = of.job("fill", i, part, 50*time.Millisecond)
		}
		var booked []string
		for i, answer := range of.throttle.ReserveAll(ctx, jobs) {
			if _, err := isRefused(answer.Err); err != nil {
				return err
			}
			if answer.Err == nil && answer.Reservation.Outcome == throttle.Booked {
				booked = append(booked, jobs[i].ID)
			}
		}
		if _, err := of.throttle.Driver().Leave(ctx, booked); err != nil {
			return err
		}
	}
	for i := range sizeKeys {
		if _, err := of.rate.AllowAtMost(ctx, of.rateKey(i), of.rateLimit(), int(of.units)); err != nil {
			return err
		}
	}
	return nil
}

// job returns a job of the i-th scope key in turn. It is refused if it cannot start within a time.
func (of *size) job(id string, i int, weight int64, within time.Duration) throttle.Job {
	now := time.Now()
	j := job(id+strconv.Itoa(i)+"-"+strconv.FormatInt(now.UnixNano(), 36), "tenant-"+strconv.Itoa(i%sizeKeys))
	j.Weight, j.Deadline = weight, now.Add(within)
	return j
}

func (of *size) rateKey(i int) string {
	return "size-" + strconv.FormatInt(of.units, 10) + "-tenant-" + strconv.Itoa(i%sizeKeys)
}

func (of *size) rateLimit() redis_rate.Limit {
	return redis_rate.Limit{Rate: int(of.units), Burst: int(of.units), Period: of.window}
}

// isRefused reports whether an error is a refusal.
func isRefused(err error) (bool, error) {
	if errors.As(err, new(*throttle.DeadlineError)) {
		return true, nil
	}
	return false, err
}

// measureBytes adds up the server's figures for the keys of both limiters.
func (of *size) measureBytes(ctx context.Context, client *redis.Client) error {
	for pattern, bytes := range map[string]*float64{
		"thr:{" + of.throttle.Name() + "}:*tenant-*":                 &of.ours.bytes,
		"rate:size-" + strconv.FormatInt(of.units, 10) + "-tenant-*": &of.theirs.bytes,
	} {
		keys := client.Scan(ctx, 0, pattern, 1000).Iterator()
		for keys.Next(ctx) {
			used, err := client.MemoryUsage(ctx, keys.Val()).Result()
			if errors.Is(err, redis.Nil) {
				continue // it has expired
			}
			if err != nil {
				return err
			}
			*bytes += float64(used) / sizeKeys
		}
		if err := keys.Err(); err != nil {
			return err
		}
	}
	return nil
}

// roundOfSizes decides under each limit in turn, in both limiters. Before each decision it charges again what has left
// the windows meanwhile.
func (b *bench) roundOfSizes(ctx context.Context, s *server, all []*size) error {
	calls := max(1, b.calls/4)
	for _, of := range all {
		if err := of.topUp(ctx, sizeSteps/10); err != nil {
			return err
		}
		heavy := max(1, of.units/20)
		for f, decide := range map[*sizeFigures]func(i int) (refused bool, err error){
			&of.ours: func(i int) (bool, error) {
				_, err := of.throttle.Reserve(ctx, of.job("call", i, heavy, 0))
				return isRefused(err)
			},
			&of.theirs: func(i int) (bool, error) {
				result, err := of.rate.AllowN(ctx, of.rateKey(i), of.rateLimit(), int(heavy))
				return err == nil && result.Allowed == 0, err
			},
		} {
			is, err := s.during(ctx, func() error {
				_, err := together(calls, 1, func(i int) error {
					refused, err := decide(i)
					if refused {
						f.refused++
					}
					return err
				})
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", of.name, err)
			}
			f.cpu = append(f.cpu, micros(is.cpu)/float64(calls))
		}
	}
	for _, of := range all {
		round := len(of.ours.cpu) - 1
		of.ours.ratio = append(of.ours.ratio, of.ours.cpu[round]/all[0].ours.cpu[round])
		of.theirs.ratio = append(of.theirs.ratio, of.theirs.cpu[round]/all[0].theirs.cpu[round])
	}
	return nil
}

func (b *bench) printSizes(all []*size) {
	decided := float64(b.rounds * max(1, b.calls/4))
	b.say("full limits of %d scope keys each, windows scaled to %s; 1 goroutine, awake, per decision:", sizeKeys,
		all[0].window)
	b.say("%-20s %28s   %28s", "", "Reserve", "redis_rate, asked once")
	b.say("%-20s %8s %8s %10s   %8s %8s %10s", "", "CPU µs", "refused", "bytes/key", "CPU µs", "refused", "bytes/key")
	for _, of := range all {
		b.say("  %-18s %8.1f %7.0f%% %10.0f   %8.1f %7.0f%% %10.0f", of.name,
			median(of.ours.cpu), 100*float64(of.ours.refused)/decided, of.ours.bytes,
			median(of.theirs.cpu), 100*float64(of.theirs.refused)/decided, of.theirs.bytes)
	}
	most := all[len(all)-1]
	b.most("CPU under a limit of 1,000,000 to one of 10", median(most.ours.ratio), 1.2)
	b.most("bytes of a scope key under a limit of 1,000,000 to one of 1,000", most.ours.bytes/all[1].ours.bytes, 1.5)
}
