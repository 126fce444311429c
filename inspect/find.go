package inspect

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// mostSearched is how many waiting jobs of a lane one call reads.
const mostSearched = 10_000

// mostPlayed is the largest number of waiting jobs with which a start is simulated; with more jobs the start is
// guessed.
const mostPlayed = 5_000

// ExplainID is Explain for a caller that knows only the job's ID. If the job waits, ExplainID searches its
// lane, ten thousand jobs in one call; with more than 5,000 waiting jobs it guesses the start. Nothing is known
// of a job that has started or that never came. ExplainID fails as Lanes does.
func (t *Inspector) ExplainID(ctx context.Context, id string) (Explanation, error) {
	if ctx == nil {
		return Explanation{}, errNoContext
	}
	if err := t.in.CheckID(id); err != nil {
		return Explanation{}, err
	}
	record, err := t.field(ctx, t.prefix+"jobs", id)
	if err != nil {
		return Explanation{}, err
	}
	switch lane, costs := wire.ReadRecord(record); {
	case costs != nil:
		return t.explain(ctx, t.orderOf(id, lane, costs))
	case lane == "":
		return t.explain(ctx, &order{job: throttle.Job{ID: id}})
	default:
		return t.explainWaiting(ctx, id, lane)
	}
}

// explainWaiting returns what is known of a job that waits in a lane. It reads the line once.
func (t *Inspector) explainWaiting(ctx context.Context, id, lane string) (Explanation, error) {
	r, err := t.readLanes(ctx)
	if err != nil {
		return Explanation{}, err
	}
	at, err := r.search(ctx, id, lane)
	if err != nil {
		return Explanation{}, err
	}
	e, err := t.explain(ctx, at.order)
	if err != nil || e.Waiting == 0 {
		return e, err
	}
	e.Before, e.Arrived = at.before, at.arrived
	if r.waiting() <= mostPlayed {
		err = r.inLine(ctx, at.order, &e)
		return e, err
	}
	e.Lanes = r.lanes()
	t.guess(at.order, &e)
	return e, nil
}

// waiting returns how many jobs are in the lanes.
func (r *reader) waiting() (jobs int64) {
	for _, l := range r.Reader.Lanes {
		jobs += l.Jobs
	}
	return jobs
}

// found is a waiting job, with how many jobs are before it in its lane.
type found struct {
	order   *order
	before  int64
	arrived time.Time
}

// search looks for a job in its lane.
func (r *reader) search(ctx context.Context, id, lane string) (found, error) {
	at := found{order: &order{job: throttle.Job{ID: id}}} // for a job that has left meanwhile
	jobs := int64(0)
	for _, l := range r.Reader.Lanes {
		if l.Lane == lane {
			jobs = l.Jobs
		}
	}
	for from := int64(0); from == 0 || from < jobs; from += mostSearched {
		list, err := r.list(ctx, r.prefix+"lane:"+lane, from, from+mostSearched-1)
		if err != nil {
			return found{}, err
		}
		for i, text := range list {
			if w, is := wire.ReadWaiter(lane, text); is && w.ID == id {
				at.order, at.before = r.orderOf(id, lane, w.Costs), from+int64(i)
				at.arrived = wire.Instant(w.Arrival) // 0 is not known
				return at, nil
			}
		}
	}
	return at, nil
}

// guess estimates when a waiting job starts, from the number of jobs before it, the flows that stand
// under its scope keys, and their limits. Expected is zero under a limit that lets nothing start and does not end by
// itself.
func (t *Inspector) guess(o *order, e *Explanation) {
	e.Expected, e.Guessed = e.Now, true
	later := func(at time.Time) {
		if at.After(e.Expected) {
			e.Expected = at
		}
	}
	for i, u := range e.Usage {
		flows := max(1, u.Waiting)
		if u.Scope == t.fair {
			flows = 1
		}
		later(u.Paused)
		for _, l := range u.Limits {
			if l.Limit.Hours != "" && u.Mode == throttle.Enforce {
				later(l.Free)
			}
			if l.Free.IsZero() && u.Mode == throttle.Enforce {
				if u.Ends.IsZero() {
					e.Expected = time.Time{}
					return
				}
				later(u.Ends)
				continue
			}
			if l.Limit.Units > 0 && u.Mode == throttle.Enforce {
				at := guessed(e.Now, u, l, float64((e.Before+1)*flows*o.Charges[i].Units))
				if l.Anew.IsZero() && at.After(l.Free) {
					at = at.Add(e.closedFor(at.Sub(e.Now)))
				}
				later(at)
			}
		}
	}
}

// closedFor returns how long the job's hours are closed, in all, until they have been open for some time.
func (e *Explanation) closedFor(open time.Duration) (closed time.Duration) {
	for _, u := range e.Usage {
		for _, l := range u.Limits {
			if u.Mode == throttle.Enforce {
				closed = max(closed, l.Limit.ClosedFor(e.Now, open))
			}
		}
	}
	return closed
}

// guessed estimates when a limit will have let that many units start.
func guessed(now time.Time, u Usage, l LimitUsage, units float64) time.Time {
	served := float64(l.Units) * u.Served
	from, each := now, float64(cmp.Or(l.Counts, l.Limit.Length()))
	if !l.Anew.IsZero() { // all units of a period may start when it begins
		late := units - max(0, served-float64(l.Used+l.Booked))
		if at := l.Limit.Through(late/u.Served, l.Anew); late > 0 && at.After(l.Free) {
			return at
		}
		return l.Free
	}
	windows := units / served
	at := from.Add(time.Duration(min(windows*each, float64(wire.MaxWindow))))
	if !l.Limit.Running && l.Free.After(at) {
		return l.Free
	}
	return at
}

// orderOf returns what a job takes, from its lane and its costs.
func (t *Inspector) orderOf(id, lane string, costs []int64) *order {
	flow, priority, names, _ := wire.LaneParts(lane)
	o := &order{job: throttle.Job{ID: id, Priority: priority}, Order: seam.Order{Flow: flow, Lane: lane}}
	for i, name := range strings.Split(names, ",") {
		scope, key, is := wire.SplitScopeKey(name)
		if !is {
			continue
		}
		n := int64(1)
		if i < len(costs) {
			n = costs[i]
		}
		o.Charges = append(o.Charges, seam.Charge{Scope: scope, Key: key, Name: name, Units: n})
		o.job.Weight = max(o.job.Weight, n)
	}
	return o
}
