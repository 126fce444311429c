package explain

import (
	"cmp"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// answer fills in why the job does not run, until when, and what would help.
func (e *Explanation) answer(of inspect.Explanation, in crowd) {
	e.Why, e.Until = e.taskAnswer()
	e.InLine = in.inAll
	switch {
	case e.Why != "":
		e.Help = helpOf[e.cause()]
	case e.idle && e.State != Unknown:
		e.Why, e.Help = "no process of the throttle is alive, so nothing starts", view.StartWorker
	case e.unpulled() != "":
		e.Why, e.Help = e.unpulled()+", so nothing starts", view.StartWorker
	case e.State == Booked:
		e.booked(of)
	case e.State == Overdue:
		e.Why, e.Help = "it did not come to its slot", "When it asks again, it comes to the front of its lane."
	case e.State == Waiting:
		e.Until = e.Expected
		e.waits(of, in)
		if e.late() {
			e.Why += ", and its deadline " + view.Clock(e.Task.Deadline) + " is before its turn at " + view.Clock(e.Expected)
			e.Until = e.Task.Deadline
		}
	default:
		e.Why = "the throttle knows nothing of it: it has not asked yet, was given back, or has started"
	}
}

// unpulled says that no worker pulls the line in which the job waits; empty if one does.
func (e *Explanation) unpulled() string {
	if e.State != Waiting {
		return ""
	}
	return view.Unpulled(e.looked, e.Now)
}

// The reasons why asynq holds a task back.
const (
	queuePaused = "queue paused"
	pending     = "pending"
	archived    = "archived"
	gone        = "gone"
)

var helpOf = map[string]string{
	queuePaused: "Resume the queue in asynq.",
	pending:     "More workers would help, or a higher Concurrency of asynq's server.",
	archived:    "When the cause of its last error is mended, run it again by asynq's Inspector, or in asynqmon.",
	gone:        "The workers take it out of line when its turn comes, and asynq-throttle purge does so now.",
}

// Held reports whether the job does not start when its turn comes: asynq holds its task back, no process is alive or
// pulls, or its deadline is before.
func (e *Explanation) Held() bool {
	return e.cause() != "" || e.idle && e.State != Unknown || e.unpulled() != "" || e.late()
}

// late reports whether the job in line is expected to start after its task's deadline.
func (e *Explanation) late() bool {
	return e.State == Waiting && e.Task != nil && !e.Task.Deadline.IsZero() && e.Expected.After(e.Task.Deadline)
}

// cause returns why asynq holds the task back; empty if it does not.
func (e *Explanation) cause() string {
	switch t := e.Task; {
	case e.gone && e.State != Unknown:
		return gone
	case t == nil || t.State == "active" || t.State == "completed":
		return ""
	case t.State == archived:
		return archived
	case t.Paused:
		return queuePaused
	case t.State == pending && e.State == Unknown:
		return pending
	}
	return ""
}

// taskAnswer returns the answer that follows from asynq's state of the task; empty if the throttle
// knows more.
func (e *Explanation) taskAnswer() (why string, until time.Time) {
	switch t := e.Task; e.cause() {
	case queuePaused:
		return "its queue is paused in asynq", time.Time{}
	case archived:
		return "asynq has archived it, after its last retry, by hand, or for an error that ended it at once", time.Time{}
	case gone:
		return "asynq has no such task: it was deleted, or the tasks are in another Redis", time.Time{}
	case pending:
		return "it is in asynq's queue and has not asked yet: no worker has taken it", time.Time{}
	default:
		switch {
		case t == nil || e.State != Unknown:
			return "", time.Time{}
		case t.State == "active":
			return "a worker has it now", time.Time{}
		case t.State == "completed":
			return "it has run", time.Time{}
		case t.Next.After(e.Now) && t.PutBack != "":
			return "it was put back, and asynq keeps it", t.Next
		case t.Next.After(e.Now) && t.State == "retry":
			return "it failed, and asynq keeps it for its next try", t.Next
		case t.Next.After(e.Now):
			return "it has not asked yet, and asynq keeps it", t.Next
		}
		return "", time.Time{}
	}
}

// booked fills in the slot of a booked job, or the pause that began after the booking and lasts longer.
func (e *Explanation) booked(of inspect.Explanation) {
	e.Why, e.Until = "it has a slot, at which all its limits have room", e.Slot
	for _, u := range of.Usage {
		if u.Mode == throttle.Enforce && u.Paused.After(e.Until) {
			e.Why = fmt.Sprintf("%s is paused beyond its slot; it then comes to the front of its lane",
				view.ScopeKey(u.Scope, u.Key))
			e.Until, e.Expected, e.Help = u.Paused, time.Time{}, "Resume it to let its jobs start sooner."
		}
	}
}

// standing counts the jobs in line under one scope key.
type standing struct{ jobs, units, flows int64 }

// crowd is the jobs in line. Redis returns the units of each lane's first job only, so the units of
// the other jobs are estimates.
type crowd struct {
	fair   string // the fair scope
	under  map[[2]string]standing
	ofFlow map[[3]string]int64 // units under a scope key of one flow
	inAll  int64
}

func crowdOf(lanes []inspect.Lane, fair string) crowd {
	c := crowd{fair: fair, under: make(map[[2]string]standing), ofFlow: make(map[[3]string]int64)}
	add := func(scope, key string, l inspect.Lane) {
		name, flow := [2]string{scope, key}, [3]string{scope, key, l.Flow}
		here := c.under[name]
		if _, seen := c.ofFlow[flow]; !seen {
			here.flows++
		}
		units := l.Jobs * l.Costs[scope]
		here.jobs, here.units = here.jobs+l.Jobs, here.units+units
		c.under[name] = here
		c.ofFlow[flow] += units
	}
	for _, l := range lanes {
		c.inAll += l.Jobs
		add(throttle.Global, "", l)
		for scope, key := range l.Keys {
			add(scope, key, l)
		}
	}
	return c
}

// waits fills in why a job in line waits: the scope key that holds the job back longest.
func (e *Explanation) waits(of inspect.Explanation, in crowd) {
	binds, limit, ok := binding(of, in)
	if !ok {
		e.Why = e.laneWaits(of)
		return
	}
	here := in.under[[2]string{binds.Scope, binds.Key}]
	key := view.ScopeKey(binds.Scope, binds.Key)
	e.Binds = &Binding{Scope: binds.Scope, Key: binds.Key, Limit: limit.String()}
	raise := fmt.Sprintf("A higher limit of %s would help.", key)
	switch {
	case binds.Paused.After(of.Now):
		e.Binds.Limit = ""
		e.Why, e.Help = key+" is paused", "Resume it to let its jobs start sooner."
		if e.Until.Before(binds.Paused) {
			e.Until = binds.Paused
		}
	case limit.Hours != "":
		e.Why, e.Help = fmt.Sprintf("%s is %s", key, hoursText(binds)), "Other hours would let its jobs start sooner."
	case exceeds(of.Costs[binds.Scope], limit):
		e.Why = fmt.Sprintf("it takes %d units of %s, more than its limit %s", of.Costs[binds.Scope], key, limit)
		e.Help, e.heavy, e.Until = raise, binds.Ends.IsZero(), binds.Ends
	case limit.Units == 0:
		e.Why, e.Help = fmt.Sprintf("%s is closed by its limit %s", key, limit), raise
	case binds.Scope == in.fair || here.flows <= 1:
		e.Why = fmt.Sprintf("%s has a limit of %s and %s in line", key, limit, here)
		e.Help = raise
	default:
		e.Why = fmt.Sprintf("%s has a limit of %s, for which %s of %d flows take turns", key, limit,
			here, here.flows)
		e.Help = fmt.Sprintf("A higher limit of %s would help, and so would a larger share or a higher priority.", key)
	}
}

// exceeds reports whether a job takes more units than a limit ever has: the limit was set after the job came.
func exceeds(units int64, limit throttle.Limit) bool {
	return limit.Units > 0 && limit.Ramp == "" && units > limit.Units
}

// hoursText says until when the hours of a scope key are closed.
func hoursText(u inspect.Usage) (text string) {
	for _, l := range u.Limits {
		if text = view.HoursText(l, u.Now); text != "" {
			break
		}
	}
	return text
}

// laneWaits returns what the job's lane waits for now.
func (e *Explanation) laneWaits(of inspect.Explanation) string {
	for _, u := range of.Usage {
		if of.Blocked == nil || u.Scope != of.Blocked.Scope || u.Key != of.Blocked.Key {
			continue
		}
		if why, _ := view.Why(u); why != "" {
			e.Binds = &Binding{Scope: u.Scope, Key: u.Key}
			return "its lane waits for " + view.ScopeKey(u.Scope, u.Key) + ": " + why
		}
	}
	return "its turn has not come"
}

// binding returns the limit under which the job would start last if each limit were the only one.
func binding(of inspect.Explanation, in crowd) (binds inspect.Usage, limit throttle.Limit, ok bool) {
	last := of.Now
	for _, u := range of.Usage {
		if u.Mode != throttle.Enforce {
			continue
		}
		if u.Paused.After(last) {
			binds, limit, last, ok = u, throttle.Limit{}, u.Paused, true
		}
		if of.Costs[u.Scope] == 0 {
			continue
		}
		for _, l := range u.Limits {
			if l.Limit.Units == 0 || exceeds(of.Costs[u.Scope], l.Limit) {
				return u, l.Limit, true
			}
			if at := alone(of, u, l, in); at.After(last) {
				binds, limit, last, ok = u, l.Limit, at, true
			}
		}
	}
	return binds, limit, ok
}

// alone estimates when the job would start under one limit only: after the units of its flow that
// are before it, and as many units of each other flow with jobs there.
func alone(of inspect.Explanation, u inspect.Usage, l inspect.LimitUsage, in crowd) time.Time {
	if l.Limit.Hours != "" {
		return l.Free
	}
	if l.Limit.Units < 0 {
		return of.Now
	}
	here := in.under[[2]string{u.Scope, u.Key}]
	before := float64(max(0, of.Before)+1) / float64(max(1, of.Waiting)) // of its lane, taken for its flow's
	turns := before * float64(here.units)
	if u.Scope != in.fair {
		flow := in.ofFlow[[3]string{u.Scope, u.Key, flowOf(of, in)}]
		turns = min(float64(here.units), before*float64(flow)*float64(max(1, here.flows)))
	}
	length := cmp.Or(l.Counts, time.Second) // it is not known how long jobs run
	units := float64(l.Units) * view.ServedShare(u)
	late := turns - (units - float64(l.Used+l.Booked)) // units that find no room in the window that ends now
	if late <= 0 {
		return of.Now
	}
	at := l.Limit.Through(late/view.ServedShare(u), l.Anew) // all units of a period may start when it begins
	if l.Anew.IsZero() {
		at = of.Now.Add(view.Times(length, late/units))
	}
	if l.Free.After(at) {
		return l.Free
	}
	return at
}

// flowOf returns the job's flow, empty without a fair scope.
func flowOf(of inspect.Explanation, in crowd) string {
	for _, u := range of.Usage {
		if u.Scope == in.fair {
			return u.Key
		}
	}
	return ""
}

// String returns the number of jobs for people, and of their units if that differs.
func (s standing) String() string {
	text := view.Many(s.jobs, "job")
	if s.units != s.jobs {
		text += fmt.Sprintf(" of %d units", s.units)
	}
	return text
}
