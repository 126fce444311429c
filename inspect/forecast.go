package inspect

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Forecast is when jobs would start.
type Forecast struct {
	// Now is when the forecast was made, on Redis' clock.
	Now time.Time
	// Starts has the start of each job, in the order of the jobs, on Redis' clock; zero for a job
	// that never starts because a limit of 0, or of less than its weight, is in force.
	Starts []time.Time
	// Last is the last start.
	Last time.Time
}

// Forecast returns when new jobs would start if they were reserved now, one after the other, and
// no other job came: given what is spent, booked, paused and in line, the shares, and what is set at run time,
// until it ends by itself. It changes nothing. The jobs need no ID; Forecast does not read MaxWait, Deadline and Nonce.
//
// The forecast is approximate: where several jobs compete for the last units of a window, the moment of a
// pull decides, and the others start a window later. Booked jobs are assumed to come to their
// slots.
//
// It simulates the line in this process, from what it reads of Redis. It blocks for two round
// trips for each 500 lanes, one for each 500 jobs, one or two for each 100 scope keys, and one for settings. If lanes
// move meanwhile, it reads them up to three times so as to miss none. With more than 20,000 lanes or a
// million waiting jobs it fails, and when the context ends meanwhile. Its other errors are Peek's, for the first job
// that has one.
func (t *Inspector) Forecast(ctx context.Context, jobs []throttle.Job) (Forecast, error) {
	orders := make([]*order, len(jobs))
	for i, job := range jobs {
		if job.ID == "" {
			job.ID = strconv.Itoa(i)
		}
		var err error
		if orders[i], err = t.order(ctx, job); err != nil {
			return Forecast{}, err
		}
	}
	r, err := t.readLine(ctx, orders)
	if err != nil {
		return Forecast{}, err
	}
	return r.forecast(ctx, orders)
}

// newcomer begins the ID of a new job in the simulated line; no other job has such an ID.
const newcomer = "\x00a forecast's new job\x00"

// Expect forecasts the starts of jobs that Reserve answered, if no other job came. A booked job starts at its
// slot, and a waiting job when its turn comes; a waiting job that was booked since Reserve's answer starts
// within the lookahead. Expect blocks and fails as Forecast does.
func (t *Inspector) Expect(ctx context.Context, answers []throttle.Reservation) (Forecast, error) {
	r, err := t.readLine(ctx, nil)
	if err != nil {
		return Forecast{}, err
	}
	var waiting []string
	for _, answer := range answers {
		if answer.Outcome == throttle.Waiting {
			waiting = append(waiting, answer.Job.ID)
		}
	}
	known, starts, err := r.play(ctx, waiting)
	if err != nil {
		return Forecast{}, err
	}
	f := Forecast{Now: r.now, Starts: make([]time.Time, len(answers))}
	for i, answer := range answers {
		switch {
		case answer.Outcome != throttle.Waiting:
			f.Starts[i] = answer.Start
		case known[answer.Job.ID]:
			f.Starts[i] = wire.Instant(starts[answer.Job.ID])
		default:
			f.Starts[i] = r.now.Add(t.options.Lookahead)
		}
	}
	return f.withLast(), nil
}

func (f Forecast) withLast() Forecast {
	for _, start := range f.Starts {
		if start.After(f.Last) {
			f.Last = start
		}
	}
	return f
}

// load returns a line that goes on from the snapshot, and the configuration under which it does.
func (r *reader) load() (*line.Line, line.Settings) {
	r.Snapshot.Now, r.Snapshot.Shares = r.now.UnixMicro(), make(map[string]int64)
	for _, l := range r.Reader.Lanes {
		flow, _, _, _ := wire.LaneParts(l.Lane)
		r.Snapshot.Shares[flow] = r.in.ShareOf(flow)
	}
	for i := range r.Snapshot.Queues {
		if q := &r.Snapshot.Queues[i]; q.Timer == 0 || r.handsOver(q.Name) {
			q.Timer = r.Snapshot.Now // lanes came since the timers were read, or a place may be free before its lease ends
		}
	}
	configured := r.in.Configured()
	for name, scope := range configured.Scopes {
		configured.Scopes[name] = line.Scope{Mode: scope.Mode, Limits: r.asRun(name, scope.Limits)}
	}
	return line.Load(r.Snapshot), configured
}

// handsOver reports whether a queue belongs to a scope key with a running limit.
func (r *reader) handsOver(queue string) bool {
	return slices.ContainsFunc(r.accounts[queue].counted,
		func(l line.Limit) bool { return l.Kind.Renewed() })
}

// play plays the line until the jobs have started. It returns which jobs are in line, and the starts of those
// that start.
func (r *reader) play(ctx context.Context, ids []string) (known map[string]bool, starts map[string]int64, err error) {
	l, settings := r.load()
	known = make(map[string]bool)
	for _, id := range ids {
		known[id] = l.Waits(id)
	}
	return known, l.Play(ctx, r.Snapshot.Now, settings, ids), ctx.Err()
}

// forecast reserves new jobs and plays the line until they have started.
func (r *reader) forecast(ctx context.Context, orders []*order) (Forecast, error) {
	l, settings := r.load()
	jobs := make([]line.Job, len(orders))
	for i, o := range orders {
		jobs[i] = line.Job{ID: newcomer + strconv.Itoa(i), Lane: o.Lane, Latest: line.Never, Share: r.in.ShareOf(o.Flow)}
		for c := range o.Charges {
			jobs[i].Costs = append(jobs[i].Costs, o.Charges[c].Units)
		}
	}
	f := Forecast{Now: r.now, Starts: make([]time.Time, len(orders))}
	answers := l.Foresee(r.Snapshot.Now, settings, jobs)
	var waiting []string
	for i, answer := range answers {
		switch answer.Outcome {
		case line.Granted, line.Booked:
			f.Starts[i] = wire.Instant(answer.Start)
		case line.Waiting:
			waiting = append(waiting, jobs[i].ID)
		case line.NeverFits:
			if err := r.neverFits(orders[i], answer.Held); err != nil {
				return Forecast{}, err
			}
		}
	}
	starts := l.Play(ctx, r.Snapshot.Now, settings, waiting)
	if err := ctx.Err(); err != nil {
		return Forecast{}, err
	}
	for i, answer := range answers {
		if answer.Outcome == line.Waiting {
			f.Starts[i] = wire.Instant(starts[jobs[i].ID])
		}
	}
	return f.withLast(), nil
}

// neverFits returns the error of a job that weighs more than a configured limit. A limit that was set at run
// time may change, so it causes no error.
func (r *reader) neverFits(o *order, held *line.Held) error {
	a, c := r.accounts[held.Key], o.charged(held.Key)
	if a.SetFor != "" {
		return nil
	}
	for i, u := range a.Limits {
		if counted := a.counted[i].Span; counted == held.Limit.Span ||
			counted.Kind == line.Running && held.Limit.Kind == line.Running { // the forecast replaced its lease
			return &throttle.NeverFitsError{Job: o.job.ID, Weight: c.Units, Scope: a.Scope, Key: c.Key, Limit: u.Limit}
		}
	}
	return badReply("usage")
}
