// Command bench measures what the throttle costs, on real Redis servers that it
// starts, beside other limiters in the same run:
//
//	cd bench && go run .
//
// It prints results as they come, in sections that -only selects from; -list names them. The section scale, which sizes
// a Redis, and hours, which takes two minutes, run only if -only selects them. Below each section are the goals that
// this project has set itself, and whether they are reached. Rows take turns for several rounds, and a figure is the
// median of its rounds; a ratio is the median of the ratios of rows that ran next to each other. The CPU time of a
// server is what the system reports for its process.
//
// A core that sleeps between two calls makes each of them dearer, so most rows run "awake": with a process of the
// lowest priority that spins on each core. Rows without it are named "idle". Use a machine that does nothing else; on
// another machine compare the ratios.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"
)

type options struct {
	calls, rounds, tasks, jobs, plans, waiting int

	only         string
	setting      string
	picture      string
	write        string
	full, strict bool
}

// defaults are sizes for a run of about three minutes; -full takes the sizes of the documents' figures.
var (
	defaults = options{calls: 4000, rounds: 5, tasks: 4000, jobs: 1200, plans: 50_000, waiting: 100_000}
	fully    = options{calls: 10_000, rounds: 7, tasks: 10_000, jobs: 4000, plans: 50_000, waiting: 100_000}
)

func main() {
	spinIfChild()
	o := defaults
	list := flag.Bool("list", false, "name the sections and end")
	flag.IntVar(&o.calls, "calls", o.calls, "decisions per row and round")
	flag.IntVar(&o.rounds, "rounds", o.rounds, "rounds")
	flag.IntVar(&o.tasks, "tasks", o.tasks, "asynq tasks per run with and without limits")
	flag.IntVar(&o.jobs, "jobs", o.jobs, "jobs of a drain")
	flag.IntVar(&o.plans, "plans", o.plans, "asynq tasks that are enqueued at once")
	flag.IntVar(&o.waiting, "waiting", o.waiting, "jobs in line where there are many")
	flag.StringVar(&o.only, "only", "", "only the sections whose name contains this")
	flag.StringVar(&o.setting, "setting", "", "of the longest calls only the settings whose name contains this")
	flag.StringVar(&o.picture, "picture", "", "draw a drain beside asynq's recipe to this SVG file, and nothing else")
	flag.StringVar(&o.write, "write", "", "write what is printed into this Markdown file, too")
	flag.BoolVar(&o.full, "full", false, "the sizes of the documents' figures, some ten minutes; the flags above win")
	flag.BoolVar(&o.strict, "strict", false, "end with an error if a goal is missed")
	flag.Parse()
	if *list {
		for _, s := range sections {
			fmt.Printf("%-10s %s\n", s.name, s.about)
		}
		return
	}
	if o.full {
		o.takeFull()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var printed bytes.Buffer
	err := run(ctx, io.MultiWriter(os.Stdout, &printed), o)
	if err == nil && o.write != "" {
		err = writePage(ctx, o.write, o.full, printed.String())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: stop only frees the signal, and so does the exit
	}
}

// takeFull takes the larger sizes, except those that a flag sets.
func (o *options) takeFull() {
	said := make(map[string]bool)
	flag.Visit(func(f *flag.Flag) { said[f.Name] = true })
	for name, number := range map[string]struct {
		of   *int
		full int
	}{
		"calls": {&o.calls, fully.calls}, "rounds": {&o.rounds, fully.rounds}, "tasks": {&o.tasks, fully.tasks},
		"jobs": {&o.jobs, fully.jobs}, "plans": {&o.plans, fully.plans}, "waiting": {&o.waiting, fully.waiting},
	} {
		if !said[name] {
			*number.of = number.full
		}
	}
}

// section is one comparison.
type section struct {
	name, about string
	run         func(ctx context.Context, b *bench) error
	alone       bool // runs only if -only selects it
}

var sections = []section{
	{name: "decisions", about: "one decision with room, beside other limiters", run: decisions},
	{name: "advance", about: "jobs of busy lanes, with units charged in advance and without", run: advance},
	{name: "ledgers", about: "a decision under a long exact ledger, beside a short one", run: ledgers},
	{name: "sizes", about: "full limits of few units and of many, beside redis_rate", run: sizesOfLimits},
	{name: "waiting", about: "joining the line, pulling and redeeming, with many in line and with few", run: waiting},
	{name: "longest", about: "the longest call of a script in bad settings", run: longest},
	{name: "memory", about: "bytes and keys in Redis", run: memory},
	{name: "tasks", about: "asynq's tasks per second under limits that never bind", run: tasks},
	{name: "plan", about: "enqueueing many tasks that are planned", run: plan},
	{name: "drain", about: "a backlog of several tenants on asynq, beside asynq's own recipe", run: drain},
	{name: "running", about: "a backlog under a limit on what runs at once, beside a window", run: running},
	{name: "shaped", about: "large backlogs under one limit of all, beside bare asynq", run: shaped},
	{name: "hours", about: "many planned tasks that wait for hours to open", run: hoursOpen, alone: true},
	{name: "scale", about: "what Redis needs by jobs, tenants, processes and nodes", run: sizing, alone: true},
}

// bench is one run.
type bench struct {
	options
	out    io.Writer
	missed int
}

func run(ctx context.Context, out io.Writer, o options) error {
	for name, n := range map[string]int{"calls": o.calls, "rounds": o.rounds, "tasks": o.tasks, "jobs": o.jobs,
		"plans": o.plans, "waiting": o.waiting} {
		if n < 1 {
			return fmt.Errorf("%s must be 1 or more", name)
		}
	}
	b := &bench{options: o, out: out}
	if o.picture != "" {
		return b.draw(ctx)
	}
	fmt.Fprintf(out, "%s, %d cores; figures are medians of %d rounds\n", runtime.Version(), runtime.NumCPU(), o.rounds)
	ran := false
	for _, s := range sections {
		if !strings.Contains(s.name, o.only) || s.alone && o.only == "" {
			continue
		}
		ran = true
		fmt.Fprintf(out, "\n%s: %s\n", s.name, s.about)
		began := time.Now()
		if err := s.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(out, "  (%.0f s)\n", time.Since(began).Seconds())
	}
	if !ran {
		return fmt.Errorf("no section has %q in its name; -list names them", o.only)
	}
	if o.strict && b.missed > 0 {
		return fmt.Errorf("%w: %d", errMissed, b.missed)
	}
	return nil
}

var errMissed = errors.New("goals missed")

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.out, "  "+format+"\n", args...) }

// most prints whether a figure is at most its goal.
func (b *bench) most(what string, got, goal float64) {
	b.verdict(what, "at most", got, goal, got <= goal)
}

// least prints whether a figure is at least its goal.
func (b *bench) least(what string, got, goal float64) {
	b.verdict(what, "at least", got, goal, got >= goal)
}

func (b *bench) verdict(what, side string, got, goal float64, reached bool) {
	verdict := "reached"
	if !reached {
		verdict = "MISSED"
		b.missed++
	}
	b.say("%-7s %s: %.4g, %s %.4g", verdict, what, got, side, goal)
}
