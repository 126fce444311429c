package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// few is how many jobs wait in line in the rows that those with many are compared
// with.
const few = 100

// batch is how many jobs join, are pulled and start in turn.
const batch = 50

// lineTenants share the line evenly.
const lineTenants = 50

// lineSteps are what happens to a job that waits.
var lineSteps = []string{"joining the line", "pulling a job", "redeeming a pulled job"}

// lineRow names the row of a step.
func lineRow(step string, waiting int) string { return fmt.Sprintf("%s, %d wait", step, waiting) }

func lineRows(many int) []row {
	var all []row
	for _, step := range lineSteps {
		for _, waiting := range []int{few, many} {
			all = append(all, row{lineRow(step, waiting), inLine(step, waiting)})
		}
	}
	return all
}

// line is a throttle with jobs in line.
type line struct {
	throttle *throttle.Throttle
	joined   int
}

func openLine(m *meter, limit throttle.Limit) (*line, error) {
	t, err := throttle.New("line", m.client, []throttle.Scope{
		{Name: throttle.Global, Limits: limits{limit}},
		{Name: "tenant"},
	}, &throttle.Options{Timeout: 10 * time.Second, Grace: 500 * time.Millisecond})
	return &line{throttle: t}, err
}

// job is the n-th job, named as the worker names them.
func (l *line) job(n int) throttle.Job {
	return job(fmt.Sprintf("default/00000000-0000-7000-8000-%012d/0", n), fmt.Sprintf("tenant-%d", n%lineTenants), 1)
}

// fill lets jobs join, several at a time, unmeasured.
func (l *line) fill(ctx context.Context, jobs int) error {
	const callers = 8
	failed := make([]error, callers)
	var each sync.WaitGroup
	for c := range callers {
		each.Go(func() {
			for n := l.joined + c; n < l.joined+jobs && failed[c] == nil; n += callers {
				_, failed[c] = l.throttle.Reserve(ctx, l.job(n))
			}
		})
	}
	each.Wait()
	l.joined += jobs
	return errors.Join(failed...)
}

// length is how many jobs stand in line.
func (l *line) length(ctx context.Context) (jobs int, err error) {
	var page throttle.LinesPage
	for more := true; more && err == nil; more = page.Next != "" {
		page, err = l.throttle.Lines(ctx, page.Next)
		for _, each := range page.Lines {
			jobs += int(each.Jobs)
		}
	}
	return jobs, err
}

// inLine drives a line of this many jobs by batches: some join, as many are
// pulled, and come at their slots. One of the steps is measured.
func inLine(step string, waiting int) func(ctx context.Context, m *meter, calls int) error {
	return func(ctx context.Context, m *meter, calls int) error {
		l, err := openLine(m, throttle.PerSecond(100))
		if err != nil {
			return err
		}
		if err := l.fill(ctx, waiting); err != nil {
			return err
		}
		for stands := 0; stands < waiting; { // the first have started or are booked
			if stands, err = l.length(ctx); err == nil {
				err = l.fill(ctx, max(0, waiting-stands))
			}
			if err != nil {
				return err
			}
		}
		if err := sleep(ctx, 2*time.Second); err != nil { // these have gone
			return err
		}
		for done := 0; done < max(batch, calls/5); done += batch {
			if err := l.turn(ctx, m, step); err != nil {
				return err
			}
			largest, err := largestLedger(ctx, m.control)
			if err != nil {
				return err
			}
			m.entries = max(m.entries, largest)
		}
		return nil
	}
}

// largestLedger is how many entries the largest ledger has.
func largestLedger(ctx context.Context, client *redis.Client) (largest int64, err error) {
	keys := client.Scan(ctx, 0, "thr:*:ledger:*", 1000).Iterator()
	for keys.Next(ctx) {
		entries, err := client.ZCard(ctx, keys.Val()).Result()
		if err != nil {
			return 0, err
		}
		largest = max(largest, entries)
	}
	return largest, keys.Err()
}

// turn lets a batch join, be pulled and start.
func (l *line) turn(ctx context.Context, m *meter, step string) error {
	do := func(name string, n int, f func(i int) error) error {
		if name == step {
			return m.measure(ctx, n, f)
		}
		for i := range n {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	}
	if err := do(lineSteps[0], batch, func(int) error {
		l.joined++
		return ask(ctx, l.throttle, l.job(l.joined-1), throttle.Waiting)
	}); err != nil {
		return err
	}
	swept, err := l.throttle.Sweep(ctx)
	if err != nil {
		return err
	}
	next := swept.Next
	var booked []throttle.Reservation
	if err := do(lineSteps[1], batch, func(int) error {
		if next == "" {
			return errors.New("no lane to pull")
		}
		jobs, after, err := l.throttle.Pull(ctx, next)
		booked, next = append(booked, jobs...), after
		return err
	}); err != nil {
		return err
	}
	if err := sleep(ctx, booked[len(booked)-1].Delay()+100*time.Millisecond); err != nil {
		return err
	}
	return do(lineSteps[2], len(booked), func(i int) error {
		var n int
		if _, err := fmt.Sscanf(booked[i].Job.ID, "default/00000000-0000-7000-8000-%d/0", &n); err != nil {
			return err
		}
		return ask(ctx, l.throttle, l.job(n), throttle.Granted)
	})
}

// mostGrowth is how much dearer a step may be with many jobs in line.
const mostGrowth = 1.2

// mostEntries is how many entries more the largest ledger may have with many jobs in
// line: what one batch books.
const mostEntries = batch

// printLine compares the steps with many jobs in line to those with few, and
// prints what Redis keeps for each. It returns how many goals it missed.
func printLine(ctx context.Context, out io.Writer, addr string, many int, costs map[string]*cost) (missed int, err error) {
	fmt.Fprintf(out, "\nserver CPU with %d jobs in line to that with %d:\n", many, few)
	var entries [2]int64
	for _, step := range lineSteps {
		a, b := costs[lineRow(step, few)], costs[lineRow(step, many)]
		if a == nil || b == nil {
			continue
		}
		ratio := b.cpu() / a.cpu()
		fmt.Fprintf(out, "  %-7s %s: %.1f to %.1f µs, %.2f, at most %.2f\n", verdict(ratio <= mostGrowth, &missed), step, b.cpu(), a.cpu(), ratio, mostGrowth)
		entries[0], entries[1] = max(entries[0], a.entries), max(entries[1], b.entries)
	}
	if entries[0] > 0 {
		fmt.Fprintf(out, "  %-7s entries in the largest ledger: %d to %d, at most %d more\n",
			verdict(entries[1] <= entries[0]+mostEntries, &missed), entries[1], entries[0], mostEntries)
	}
	m := newMeter(addr)
	defer m.client.Close()  //nolint:errcheck // nothing is lost with it
	defer m.control.Close() //nolint:errcheck // nothing is lost with it
	if err := m.control.FlushAll(ctx).Err(); err != nil {
		return missed, err
	}
	l, err := openLine(m, throttle.Limit{Units: 1, Window: time.Hour})
	if err != nil {
		return missed, err
	}
	if err := l.fill(ctx, many); err != nil {
		return missed, err
	}
	used, err := lineMemory(ctx, m.control)
	if err != nil {
		return missed, err
	}
	fmt.Fprintf(out, "  a waiting job takes %d bytes in Redis, of %d that wait, IDs of %d bytes\n", used/int64(many), many, len(l.job(0).ID))
	idle, err := idleSweep(ctx, m, l)
	fmt.Fprintf(out, "  a process' idle sweeps take %.0f µs of server CPU a second\n", idle)
	return missed, err
}

// lineMemory adds up the line's keys.
func lineMemory(ctx context.Context, client *redis.Client) (int64, error) {
	var total int64
	keys := client.Scan(ctx, 0, "thr:*", 1000).Iterator()
	for keys.Next(ctx) {
		if strings.Contains(keys.Val(), ":job:") {
			continue
		}
		used, err := client.MemoryUsage(ctx, keys.Val(), 0).Result()
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, keys.Err()
}

// idleSweep is the server's CPU time of four sweeps that find nothing.
func idleSweep(ctx context.Context, m *meter, l *line) (float64, error) {
	const sweeps = 400
	err := m.measure(ctx, sweeps, func(int) error {
		_, err := l.throttle.Sweep(ctx)
		return err
	})
	return 4 * m.cpuMicros / sweeps, err
}
