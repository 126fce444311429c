// Command bench measures what one decision costs, on a real Redis that it
// starts, beside other limiters in the same run:
//
//	cd bench && go run .
//
// It prints one table and, below it, how far the figures that this project has
// set itself are reached. Everything a row needs is done in its own interval,
// between which the server is emptied and its statistics are reset. Rows take
// turns for several rounds, and each figure is the lowest of them. Run it on a
// machine that does nothing else: what shares the processors makes the short
// decisions dearer than the long ones, so that not even the ratios keep.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// yardstick is the row that the others are compared with.
const yardstick = "redis_rate asked twice (tenant, then global)"

type options struct {
	calls, rounds, tasks, waiting, plans int
	only                                 string
	strict                               bool
}

func main() {
	var o options
	flag.IntVar(&o.calls, "calls", 10_000, "decisions per row and round")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.IntVar(&o.tasks, "tasks", 10_000, "asynq tasks per run with and without the middleware; 0 leaves the comparison out")
	flag.IntVar(&o.waiting, "waiting", 100_000, "jobs in line, for the rows about it")
	flag.IntVar(&o.plans, "plans", 50_000, "asynq tasks that are planned in one EnqueueAll, for -only "+onlyPlan)
	flag.StringVar(&o.only, "only", "", "only the rows whose name contains this, and the one compared with; "+onlyPlan+" is the planning of asynq tasks alone")
	flag.BoolVar(&o.strict, "strict", false, "end with an error if a goal is missed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: stop only frees the signal, and so does the exit
	}
}

func run(ctx context.Context, out io.Writer, o options) (err error) {
	if o.calls < 1 || o.rounds < 1 || o.tasks < 0 || o.plans < 1 || o.waiting < 1 {
		return errors.New("calls, rounds, waiting and plans must be 1 or more, tasks 0 or more")
	}
	server, err := redistest.Launch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	version, err := serverVersion(ctx, server.Addr)
	if err != nil {
		return err
	}
	if o.only == onlyPlan {
		fmt.Fprintf(out, "Redis %s, %d rounds\n", version, o.rounds)
		missed, err := comparePlanning(ctx, out, server.Addr, o.plans, o.rounds)
		return errors.Join(err, o.held(missed))
	}
	fmt.Fprintf(out, "Redis %s, %d calls per row and round over %d tenants, %d rounds, one goroutine\n\n", version, o.calls, tenants, o.rounds)
	costs := make(map[string]*cost)
	chosen := choose(rows(o.waiting), o.only)
	for range o.rounds {
		for _, row := range chosen {
			if err := measureRow(ctx, server.Addr, row, o.calls, costs); err != nil {
				return err
			}
		}
	}
	printTable(out, chosen, costs)
	if err := printMemory(ctx, out, server.Addr); err != nil {
		return err
	}
	missed, err := printLine(ctx, out, server.Addr, o.waiting, costs)
	if err != nil {
		return err
	}
	var throughput *throughput
	if o.tasks > 0 {
		if throughput, err = compareThroughput(ctx, server.Addr, o.tasks, o.rounds); err != nil {
			return err
		}
		fmt.Fprintf(out, "\nasynq, %d tasks, %d workers: %.0f tasks/s without, %.0f tasks/s with the middleware, ratio %.2f\n",
			o.tasks, asynqWorkers, throughput.without, throughput.with, throughput.ratio)
	}
	missed += printGoals(out, costs, throughput)
	return o.held(missed)
}

var errMissed = errors.New("goals missed")

// held is an error for goals that were missed, where that is asked for.
func (o options) held(missed int) error {
	if o.strict && missed > 0 {
		return fmt.Errorf("%w: %d", errMissed, missed)
	}
	return nil
}

// choose keeps the rows whose name contains only, and the yardstick.
func choose(all []row, only string) []row {
	var chosen []row
	for _, row := range all {
		if strings.Contains(row.name, only) || row.name == yardstick {
			chosen = append(chosen, row)
		}
	}
	return chosen
}

func printTable(out io.Writer, rows []row, costs map[string]*cost) {
	base := costs[yardstick]
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "one decision\tscript µs\tserver CPU µs\tto redis_rate twice\tround trip p50 µs\tp99 µs\tto redis_rate twice\t")
	for _, row := range rows {
		c := costs[row.name]
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.2f\t%.0f\t%.0f\t%.2f\t\n", row.name,
			c.script(), c.cpu(), c.cpu()/base.cpu(), c.p50(), c.p99(), c.p50()/base.p50())
	}
	table.Flush()
}

// goal is a figure that is to be reached.
type goal struct {
	row, what string
	most      float64
	got       func(c, base *cost) float64
}

func cpuRatio(c, base *cost) float64       { return c.cpu() / base.cpu() }
func roundTripRatio(c, base *cost) float64 { return c.p50() / base.p50() }

var goals = []goal{
	{rowReserve, "server CPU", 1.2, cpuRatio},
	{rowReserve, "round trip p50", 0.7, roundTripRatio},
	{rowReserve10, "server CPU", 1.2, cpuRatio},
	{rowReserve10, "round trip p50", 0.7, roundTripRatio},
	{rowTwoLimits, "server CPU", 1.9, cpuRatio},
	{rowBooking, "server CPU", 2.5, cpuRatio},
}

// leastThroughput is what must be left of asynq's tasks per second.
const leastThroughput = 0.75

// printGoals returns how many goals it missed.
func printGoals(out io.Writer, costs map[string]*cost, throughput *throughput) (missed int) {
	fmt.Fprintln(out, "\ngoals, as ratios to redis_rate asked twice:")
	base := costs[yardstick]
	for _, g := range goals {
		if c := costs[g.row]; c != nil {
			got := g.got(c, base)
			fmt.Fprintf(out, "  %-7s %s: %s %.2f, at most %.2f\n", verdict(got <= g.most, &missed), g.row, g.what, got, g.most)
		}
	}
	if throughput != nil {
		fmt.Fprintf(out, "  %-7s asynq tasks/s with the middleware to without: %.2f, at least %.2f\n",
			verdict(throughput.ratio >= leastThroughput, &missed), throughput.ratio, leastThroughput)
	}
	return missed
}

// verdict counts what was missed.
func verdict(reached bool, missed *int) string {
	if reached {
		return "reached"
	}
	*missed++
	return "MISSED"
}
