package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// mostPlayed is how many jobs, in line and new, a forecast simulates by default.
const mostPlayed = 5_000

// foreseen is when the new jobs would start.
type foreseen struct {
	Throttle string    `json:"throttle"`
	Now      time.Time `json:"now"`
	Jobs     int       `json:"jobs"`
	InLine   int64     `json:"in_line"` // jobs in line before the new ones
	First    time.Time `json:"first,omitzero"`
	Last     time.Time `json:"last,omitzero"` // zero: never, unless limits change
	Guessed  bool      `json:"guessed"`
	Never    int       `json:"never"` // how many new jobs would never start
	// Earliest is true if the jobs may start later, since it is not known how long jobs run.
	Earliest bool `json:"earliest,omitempty"`
}

func (p *program) forecast() *cobra.Command {
	var jobs, priority int
	var weight int64
	var keys, costs []string
	var exact bool
	cmd := &cobra.Command{
		Use:               "forecast THROTTLE",
		Short:             "when n new jobs of a kind would start, if they came now",
		Example:           `  asynq-throttle forecast smtp --jobs 1000 --key tenant=acme --key domain=gmail.example`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeThrottle,
		RunE: limited(func(cmd *cobra.Command, args []string) error {
			if jobs < 1 || jobs > 100_000 {
				return usagef("--jobs %d is not between 1 and 100000", jobs)
			}
			job, err := jobOf(weight, keys, costs)
			if err != nil {
				return err
			}
			job.Priority = priority
			ctx := cmd.Context()
			th, err := p.attach(ctx, args[0])
			if err != nil {
				return err
			}
			f, err := foresee(ctx, th, job, jobs, exact)
			if err != nil {
				return withFlag(err)
			}
			return p.print(f, func(g *page) { writeForecast(g, f) })
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&jobs, "jobs", 1, "how many")
	flags.Int64Var(&weight, "weight", 1, "units of each")
	flags.StringArrayVar(&keys, "key", nil, "SCOPE=KEY, for each scope that concerns them")
	flags.StringArrayVar(&costs, "cost", nil, "SCOPE=UNITS, where it differs from the weight")
	flags.IntVar(&priority, "priority", 0, "0, the highest, to "+strconv.Itoa(throttle.LowestPriority))
	flags.BoolVar(&exact, "exact", false, "simulate the line even if it is long, which takes seconds")
	return cmd
}

// withFlag adds to an error about a job the flag that corrects it.
func withFlag(err error) error {
	var wrong *throttle.InvalidJobError
	if !errors.As(err, &wrong) {
		return err
	}
	switch wrong.Field {
	case "Keys":
		return usagef("%w; it is given as --key SCOPE=KEY", err)
	case "Costs":
		return usagef("%w; it is given as --cost SCOPE=UNITS", err)
	case "Priority":
		return usagef("%w; it is given as --priority", err)
	case "Weight":
		return usagef("%w; it is given as --weight", err)
	}
	return err
}

// jobOf returns the job that the flags describe.
func jobOf(weight int64, keys, costs []string) (throttle.Job, error) {
	job := throttle.Job{ID: "forecast", Weight: weight, Keys: map[string]string{}, Costs: map[string]int64{}}
	for _, text := range keys {
		scope, key, is := strings.Cut(text, "=")
		if !is {
			return job, usagef("--key %q is not SCOPE=KEY", text)
		}
		if other, twice := job.Keys[scope]; twice {
			return job, usagef("--key %q and %q: a job has one key of a scope", scope+"="+other, text)
		}
		job.Keys[scope] = key
	}
	for _, text := range costs {
		scope, units, _ := strings.Cut(text, "=")
		n, err := strconv.ParseInt(units, 10, 64)
		if err != nil {
			return job, usagef("--cost %q is not SCOPE=UNITS", text)
		}
		if _, twice := job.Costs[scope]; twice {
			return job, usagef("--cost %q: the cost in scope %q is given twice", text, scope)
		}
		job.Costs[scope] = n
	}
	return job, nil
}

func foresee(ctx context.Context, th *inspect.Inspector, job throttle.Job, jobs int, exact bool) (foreseen, error) {
	f := foreseen{Throttle: th.Name(), Jobs: jobs}
	lanes, err := th.Lanes(ctx)
	if err != nil {
		return f, err
	}
	for _, l := range lanes {
		f.InLine += l.Jobs
	}
	if !exact && f.InLine+int64(jobs) > mostPlayed {
		return guess(ctx, th, job, f)
	}
	many := make([]throttle.Job, jobs)
	for i := range many {
		many[i] = job
		many[i].ID = ""
	}
	played, err := th.Forecast(ctx, many)
	if err != nil {
		return f, err
	}
	f.Now, f.Last = played.Now, played.Last
	for _, start := range played.Starts {
		switch {
		case start.IsZero():
			f.Never++
		case f.First.IsZero() || start.Before(f.First):
			f.First = start
		}
	}
	if f.Never > 0 {
		f.Last = time.Time{}
	}
	f.Earliest, err = runsUnknown(ctx, th, job)
	return f, err
}

// runsUnknown reports whether a running limit of a job is in force and it is not known how long jobs run: then a
// forecast assumes that a place is always free.
func runsUnknown(ctx context.Context, th *inspect.Inspector, job throttle.Job) (bool, error) {
	for scope, key := range scopeKeysOf(ctx, th, job) {
		u, err := th.Usage(ctx, scope, key)
		if err != nil {
			return false, err
		}
		if u.Mode == throttle.Enforce && slices.ContainsFunc(u.Limits,
			func(l inspect.LimitUsage) bool { return l.Limit.Running && l.Counts == 0 }) {
			return true, nil
		}
	}
	return false, nil
}

// guess estimates from Peek's answer about the first job, and from how long the limits take to let
// the others start. Under a limit of 0, or a ramp that is held before it begins, no job ever starts, unless the setting
// ends by itself.
func guess(ctx context.Context, th *inspect.Inspector, job throttle.Job, f foreseen) (foreseen, error) {
	first, err := th.Peek(ctx, job)
	if err != nil {
		return f, err
	}
	f.Guessed, f.Now = true, first.Now
	var hours []throttle.Limit
	each := time.Duration(0)
	if h := first.Hold; first.Ahead > 0 && (h == nil || h.Limit.Units > 0) { // no pause, no hours, no limit of 0
		each = first.Start.Sub(first.Now) / time.Duration(first.Ahead+1) // the average time of the jobs before it
	}
	for scope, key := range scopeKeysOf(ctx, th, job) {
		u, err := th.Usage(ctx, scope, key)
		if err != nil {
			return f, err
		}
		units := job.Weight
		if cost, own := job.Costs[scope]; own {
			units = cost
		}
		if u.Mode != throttle.Enforce || units == 0 {
			continue
		}
		for _, l := range u.Limits {
			switch {
			case l.Free.IsZero() && !u.Ends.IsZero():
				first.Start = latest(first.Start, u.Ends)
			case l.Free.IsZero():
				f.Last, f.Never = time.Time{}, f.Jobs
				return f, nil
			case l.Limit.Hours != "":
				hours = append(hours, l.Limit)
			case l.Limit.Ramp != "":
				all := float64(f.Jobs) * float64(units) / view.ServedShare(u)
				f.Last = latest(f.Last, l.Limit.Through(all, first.Start))
			case l.Limit.Units > 0:
				counts := cmp.Or(l.Counts, l.Limit.Length())
				each = max(each, time.Duration(float64(counts)*float64(units)/float64(l.Limit.Units)/view.ServedShare(u)))
			}
		}
	}
	lasts, closed := view.Times(each, float64(f.Jobs-1)), time.Duration(0)
	for _, limit := range hours {
		closed = max(closed, limit.ClosedFor(first.Start, lasts))
	}
	f.First, f.Last = first.Start, latest(f.Last, first.Start.Add(lasts+closed))
	return f, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// scopeKeysOf returns the scope keys that apply to a job.
func scopeKeysOf(ctx context.Context, th *inspect.Inspector, job throttle.Job) map[string]string {
	keys := make(map[string]string)
	for scope, key := range job.Keys {
		keys[scope] = key
	}
	if names, err := scopesOf(ctx, th); err == nil {
		for _, name := range names {
			if name == throttle.Global {
				keys[name] = ""
			}
		}
	}
	return keys
}

func writeForecast(g *page, f foreseen) {
	about := ""
	if f.Guessed {
		about = "about "
	}
	if f.Never > 0 || f.Last.IsZero() {
		g.line("%d of %d would never start, unless limits change", max(1, f.Never), f.Jobs)
		return
	}
	g.line("of %s the first starts %s%s, the last %s%s; %d in line now", view.Many(f.Jobs, "job"), about,
		at(f.First, f.Now), about, at(f.Last, f.Now), f.InLine)
	if f.Earliest {
		g.line("at the earliest: how long jobs run under a running limit is not known, unless Scope.Runs says it")
	}
	if f.Guessed {
		g.line("guessed from the limits, since so many jobs wait; --exact simulates the line")
	}
}
