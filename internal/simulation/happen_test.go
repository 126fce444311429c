package simulation_test

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// happen lets a fault happen, and undoes it after its time, or when all is done.
func (w *world) happen(f fault, done <-chan struct{}) {
	ctx := context.Background()
	switch f.does {
	case crash, restart, outage, loss, stall:
		w.strike(f, done)
	case flush:
		w.must("SCRIPT FLUSH", w.operator.wire.client.ScriptFlush(ctx).Err())
	case clock:
		w.turn(f.step)
	case pause, limits, mode:
		w.control(ctx, f, done)
	case queue:
		w.must("pause the queue", w.tasks.PauseQueue("default"))
		w.later(f, done)
		w.must("go on with the queue", w.tasks.UnpauseQueue("default"))
	case deletion, archive, nudge:
		w.touch(f)
	case eviction:
		w.must("DEL", w.operator.wire.client.Del(ctx, "thr:{"+w.name+"}:4:edges").Err())
	}
}

// later waits for the end of a fault.
func (w *world) later(f fault, done <-chan struct{}) {
	select {
	case <-time.After(f.lasts):
	case <-done:
	}
}

func (w *world) must(what string, err error) {
	if err != nil {
		w.errorf("%s: %v", what, err)
	}
}

// strike hits one of the processes.
func (w *world) strike(f fault, done <-chan struct{}) {
	alive := w.alive()
	if f.does == loss {
		alive = append(alive, w.operator)
	}
	if len(alive) == 0 {
		return
	}
	r := alive[f.which%len(alive)]
	switch f.does {
	case crash:
		w.die(r)
		w.later(f, done)
		w.begin(f.process)
	case restart:
		r.stop()
		w.begin(f.process)
	case outage:
		r.fault(false)
		r.wire.cut(true)
		w.later(f, done)
		r.wire.cut(false)
		r.fault(false)
	case stall:
		r.fault(false)
		r.wire.stop(f.lasts)
		w.later(f, done)
		r.fault(false)
	case loss:
		r.wire.lose(f.verb, f.replies)
	}
}

// turn steps Redis' clock, between two commands.
func (w *world) turn(step time.Duration) {
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	if step < 0 {
		w.account.stepsBack()
	}
	w.backend.age(w) // keys age by the old clock: later commands write by the new clock
	w.mu.Lock()
	w.step += step
	w.turns = append(w.turns, turned{time.Now(), w.step})
	w.mu.Unlock()
	w.backend.age(w)
}

// control sets something at run time, and takes it back.
func (w *world) control(ctx context.Context, f fault, done <-chan struct{}) {
	th := w.operator.throttle
	switch f.does {
	case pause:
		_, err := inspect.New(th).Pause(ctx, f.scope, f.key, time.Now().Add(f.lasts))
		w.must("Pause", err)
		if f.which%2 == 0 {
			f.lasts /= 2
			w.later(f, done)
			_, err := inspect.New(th).Resume(ctx, f.scope, f.key)
			w.must("Resume", err)
		}
	case limits:
		w.must("SetLimits", inspect.New(th).SetLimits(ctx, f.scope, f.key, f.limits))
		w.later(f, done)
		w.must("ResetLimits", inspect.New(th).ResetLimits(ctx, f.scope, f.key))
	default:
		scope := f.scope
		if f.which%4 == 0 {
			scope = "" // the mode of all scopes
		}
		w.must("SetMode", inspect.New(th).SetMode(ctx, scope, f.mode))
		w.later(f, done)
		w.must("ResetMode", inspect.New(th).ResetMode(ctx, scope))
	}
}

// touch does something to a task by hand, if it is in a state for it.
func (w *world) touch(f fault) {
	j := w.plan.jobs[f.which%len(w.plan.jobs)]
	switch f.does {
	case deletion:
		w.ended(j, f.does, w.tasks.DeleteTask("default", j.id))
	case archive:
		w.ended(j, f.does, w.tasks.ArchiveTask("default", j.id))
	default:
		w.runByHand(j)
	}
}

// ended notes what ended a job by hand, unless the job was running, gone or not enqueued yet.
func (w *world) ended(j *job, how mischief, err error) {
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.byHand[j.id] = how
	}
}

// runByHand runs a task as a careful operator would: a task that asynq keeps for later, not a
// task that has ended.
func (w *world) runByHand(j *job) {
	if info, err := w.tasks.GetTaskInfo("default", j.id); err == nil && info.State != asynq.TaskStateArchived {
		_ = w.tasks.RunTask("default", j.id) // fails if the task runs already
	}
}
