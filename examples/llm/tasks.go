package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// taskType is the type of the asynq tasks. Each task stands for one prompt, which is its payload.
const taskType = "llm:complete"

// headerArrived is the header with a prompt's arrival, in microseconds since 1970 on Redis'
// clock.
const headerArrived = "arrived"

// patience is how long a person waits. A prompt that cannot start in that time because its
// customer's budget is used up is refused at once.
const patience = 10 * time.Minute

// retention is how long asynq remembers an answer: during that time, a second run does not
// ask again.
const retention = 24 * time.Hour

// task returns the asynq task that stands for a prompt.
func (a *assistant) task(p *prompt.Prompt, arrived time.Time) *asynq.Task {
	headers := map[string]string{headerArrived: strconv.FormatInt(arrived.UnixMicro(), 10)}
	return worker.NewTask(taskType, p.Payload(), headers,
		asynq.TaskID(p.ID), asynq.Queue(a.Queue), asynq.MaxRetry(retries), asynq.Timeout(taskTimeout),
		asynq.Retention(retention))
}

// jobOf returns what a task takes: one request, and tokens of the model and of the
// customer's budget.
func (a *assistant) jobOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	p, err := prompt.Read(task.Payload())
	if err != nil {
		return throttle.Job{}, err
	}
	job := throttle.Job{
		Weight:   1,
		Costs:    costs(estimate(p)),
		Keys:     map[string]string{scopeRequests: a.model, scopeTokens: a.model, scopeBudget: p.Customer},
		Priority: priority(p),
	}
	if p.Kind == prompt.Interactive {
		arrived, err := strconv.ParseInt(task.Headers()[headerArrived], 10, 64)
		if err != nil {
			return throttle.Job{}, fmt.Errorf("llm: header %s %q is not an integer", headerArrived,
				task.Headers()[headerArrived])
		}
		job.Deadline = time.UnixMicro(arrived).Add(patience)
	}
	return job, nil
}

// estimate returns how many tokens a prompt is charged before its answer is known: its own,
// and the most that the answer may have. Providers count a request in the same way when it
// arrives; a client that charges less gets their 429.
func estimate(p *prompt.Prompt) int64 {
	return chat.PromptTokens(messages(p)) + p.MaxTokens
}

// enqueueAll enqueues the prompts when they arrive. Interactive prompts do not wait until the
// batch is planned.
func (a *assistant) enqueueAll(ctx context.Context, began time.Time, prompts []*prompt.Prompt) error {
	var batch, interactive []*prompt.Prompt
	for _, p := range prompts {
		if p.Kind == prompt.Batch {
			batch = append(batch, p)
		} else {
			interactive = append(interactive, p)
		}
	}
	planned := make(chan error, 1)
	go func() { planned <- a.enqueue(ctx, batch) }()
	for _, p := range interactive {
		if !rig.SleepUntil(ctx, began.Add(p.At)) {
			break
		}
		if err := a.enqueue(ctx, []*prompt.Prompt{p}); err != nil {
			return errors.Join(err, <-planned)
		}
	}
	return <-planned
}

// enqueue enqueues prompts, planned for their starts. A task that asynq has from an earlier
// run is not enqueued again: it keeps its queue position or slot.
func (a *assistant) enqueue(ctx context.Context, prompts []*prompt.Prompt) error {
	arrived := a.Now()
	tasks := make([]*asynq.Task, len(prompts))
	for i, p := range prompts {
		tasks[i] = a.task(p, arrived)
		a.ledger.Arrived(p, arrived)
	}
	plan, _ := a.planner.EnqueueAll(ctx, tasks) // each task has its own error
	for i, p := range prompts {
		var late *throttle.DeadlineError
		switch err := plan.Tasks[i].Err; {
		case errors.As(err, &late): // no task for it
			a.ledger.Refused(p, err)
		case err != nil && !errors.Is(err, asynq.ErrTaskIDConflict):
			return fmt.Errorf("prompt %s: %w", p.ID, err)
		}
	}
	return nil
}
