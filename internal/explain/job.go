package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// Explanation is what is known of a job; if the job is a task of asynq, also of the task.
type Explanation struct {
	Throttle string    `json:"throttle"`
	Job      string    `json:"job"`
	Now      time.Time `json:"now"`
	// State is booked, waiting, overdue (the job did not come to its slot) or unknown.
	State string `json:"state"`
	// Why describes why the job does not run. Until is when this reason ends; zero if unknown. Help
	// describes what would let the job start sooner; empty if nothing would.
	Why   string    `json:"why"`
	Until time.Time `json:"until,omitzero"`
	Help  string    `json:"help,omitempty"`
	// Binds is the limit that holds a job in line back longest; nil if unknown. Scope and Key name the
	// scope key for which the job's lane waits now, which may be another.
	Binds *Binding `json:"binds,omitempty"`
	// Before is how many of the lane's Waiting jobs come before the job. InLine is how many jobs
	// wait in all.
	InLine   int64     `json:"in_line,omitempty"`
	Slot     time.Time `json:"slot,omitzero"`
	Arrived  time.Time `json:"arrived,omitzero"`
	Priority int       `json:"priority,omitempty"`
	Before   int64     `json:"before,omitempty"`
	Waiting  int64     `json:"waiting,omitempty"`
	Scope    string    `json:"scope,omitempty"` // of the scope key for which the job's lane waits
	Key      string    `json:"key,omitempty"`
	Expected time.Time `json:"expected,omitzero"`
	Guessed  bool      `json:"guessed,omitempty"`
	// Earliest is true if the job may start later than Expected, since it is not known how long jobs run.
	Earliest bool         `json:"earliest,omitempty"`
	Limits   []LimitState `json:"limits,omitempty"`
	Task     *Task        `json:"task,omitempty"`

	gone   bool      // asynq has the queue of the job's task, and no such task
	idle   bool      // no process of the throttle is alive
	heavy  bool      // the job takes more units than a limit without an end
	looked time.Time // when a pull has to look at the queue of the job's lane; zero if unknown
}

// Binding is a limit of a scope key, or its pause: then Limit is empty.
type Binding struct {
	Scope string `json:"scope"`
	Key   string `json:"key,omitempty"`
	Limit string `json:"limit,omitempty"`
}

// LimitState is the state of a limit, or of a pause, that applies to the job.
type LimitState struct {
	Scope  string    `json:"scope"`
	Key    string    `json:"key,omitempty"`
	Limit  string    `json:"limit"`
	Used   int64     `json:"used"`
	Booked int64     `json:"booked"`
	Free   time.Time `json:"free,omitzero"`
	Hours  string    `json:"hours,omitempty"`      // whether hours are open and until when
	Anew   time.Time `json:"begins_anew,omitzero"` // when the next period of a quota begins
	Served float64   `json:"served,omitzero"`      // the served share; zero if the upstream serves all
	Paused time.Time `json:"paused,omitzero"`
	// Mode is the mode in force: where it is not enforce, neither the limit nor the pause delays the job.
	Mode throttle.Mode `json:"mode"`
}

// Task is asynq's state of the task.
type Task struct {
	Queue     string    `json:"queue"`
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	State     string    `json:"state"`
	Paused    bool      `json:"queue_paused,omitempty"`
	Retried   int       `json:"retried"` // how many retries of MaxRetry are used; put-backs do not count
	MaxRetry  int       `json:"max_retry"`
	LastError string    `json:"last_error,omitempty"` // of a failure
	PutBack   string    `json:"put_back,omitempty"`   // why it was put back last, if it has not failed since
	Next      time.Time `json:"next,omitzero"`
	Deadline  time.Time `json:"deadline,omitzero"` // by when the task must start

	retried int // as asynq counts, with put-backs
}

// States of a job.
const (
	Booked  = "booked"  // the job has a slot
	Waiting = "waiting" // the job is in line
	Overdue = "overdue" // the job did not come to its slot
	Unknown = "unknown" // the job never asked, was given back, or has started
)

// Job finds a job by its ID, or else a task of asynq by its ID in any queue or by queue/ID. client
// is the client of asynq's Redis; with nil, Job finds no task.
func Job(ctx context.Context, th *inspect.Inspector, client redis.UniversalClient, id string) (Explanation, error) {
	e, err := th.ExplainID(ctx, id)
	if err != nil {
		return Explanation{}, err
	}
	result := explanationOf(th.Name(), e)
	if _, _, _, isTask := worker.TaskOf(id); client != nil && (result.State == Unknown || isTask) {
		found, queue, err := taskOf(ctx, client, id)
		if err != nil {
			return result, err
		}
		if found != nil && result.State == Unknown {
			if e, err = th.ExplainID(ctx, worker.JobID(found.Queue, found.ID, found.retried)); err != nil {
				return Explanation{}, err
			}
			result = explanationOf(th.Name(), e)
		}
		result.Task, result.gone = found, found == nil && isTask && queue
	}
	processes, err := th.Processes(ctx)
	if err != nil {
		return result, err
	}
	result.idle = !slices.ContainsFunc(processes, func(p throttle.Process) bool { return p.Alive })
	result.answer(e, crowdOf(e.Lanes, fairScope(processes)))
	return result, nil
}

// fairScope returns the fair scope of the newest process; empty for none.
func fairScope(processes []throttle.Process) string {
	if len(processes) == 0 {
		return ""
	}
	return processes[0].FairScope
}

// taskOf finds a task by its ID, by queue/ID, or by its job's ID; nil if there is none. known is true if asynq has the
// queue that the ID names.
func taskOf(ctx context.Context, client redis.UniversalClient, id string) (task *Task, known bool, err error) {
	inspector := asynq.NewInspectorFromRedisClient(client)
	queues, err := inspector.Queues()
	if err != nil {
		return nil, false, fmt.Errorf("asynq's queues cannot be read: %w", err)
	}
	queue, rest, _ := strings.Cut(id, "/")
	if q, name, _, is := worker.TaskOf(id); is {
		queue, rest = q, name
	}
	for _, q := range queues {
		if ctx.Err() != nil {
			return nil, known, ctx.Err()
		}
		wanted := id
		if q == queue && rest != "" {
			wanted, known = rest, true
		}
		info, err := inspector.GetTaskInfo(q, wanted)
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound):
			continue // the task is in another queue
		case err != nil:
			return nil, known, fmt.Errorf("asynq's queue %s cannot be read: %w", q, err)
		}
		found := &Task{Queue: q, ID: info.ID, Type: info.Type, State: info.State.String(),
			Next: info.NextProcessAt, Deadline: worker.DeadlineOf(info), retried: info.Retried}
		found.Retried, found.MaxRetry = worker.RetriesOf(info)
		if worker.WasPutBack(info) {
			found.PutBack = info.LastErr
		} else {
			found.LastError = info.LastErr
		}
		if of, err := inspector.GetQueueInfo(q); err == nil {
			found.Paused = of.Paused
		}
		return found, known, nil
	}
	return nil, known, nil
}

// Never reports whether the job never starts unless limits change, rather than at an unknown time.
func (e *Explanation) Never() bool {
	return e.heavy || slices.ContainsFunc(e.Limits, func(l LimitState) bool {
		return l.Mode == throttle.Enforce && l.Limit != "" && l.Free.IsZero()
	})
}

func explanationOf(name string, e inspect.Explanation) Explanation {
	result := Explanation{
		Throttle: name, Job: e.Job, Now: e.Now, State: Unknown,
		Slot: e.Slot, Arrived: e.Arrived, Priority: e.Priority, Before: e.Before, Waiting: e.Waiting,
		Expected: e.Expected, Guessed: e.Guessed, looked: e.Looked,
	}
	switch {
	case !e.Slot.IsZero():
		result.State = Booked
	case e.Waiting > 0:
		result.State = Waiting
	case !e.Arrived.IsZero():
		result.State = Overdue
	}
	if e.Blocked != nil {
		result.Scope, result.Key = e.Blocked.Scope, e.Blocked.Key
	}
	for _, u := range e.Usage {
		paused := time.Time{}
		if u.Paused.After(u.Now) {
			paused = u.Paused
		}
		if len(u.Limits) == 0 && !paused.IsZero() {
			result.Limits = append(result.Limits, LimitState{Scope: u.Scope, Key: u.Key, Paused: paused, Mode: u.Mode})
		}
		for _, l := range u.Limits {
			if l.Limit.Running && l.Counts == 0 && l.Used+l.Booked >= l.Units && u.Mode == throttle.Enforce {
				result.Earliest = result.State == Waiting
			}
			if !l.Free.IsZero() && !l.Free.After(e.Now.Add(time.Second)) { // the limit was read a moment after the job
				l.Free = e.Now
			}
			state := LimitState{Scope: u.Scope, Key: u.Key, Limit: view.UseText(l), Used: l.Used,
				Booked: l.Booked, Free: l.Free, Anew: l.Anew, Paused: paused, Mode: u.Mode}
			if state.Hours = view.HoursText(l, e.Now); state.Hours != "" {
				state.Anew = time.Time{}
			}
			if u.Served < 1 && l.Limit.Units > 0 {
				state.Served = u.Served
			}
			result.Limits = append(result.Limits, state)
		}
	}
	return result
}
