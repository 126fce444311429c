package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/delivery"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// taskType is the type of the asynq tasks, each of which stands for one mail. The
// payload of a task is the mail's id; what the throttle needs is in the headers.
const taskType = "mail:send"

// headerWeight is the header with a task's weight. The headers with its keys are named
// like the scopes.
const headerWeight = "weight"

// retention is how long asynq remembers a delivered mail: during that time, a second
// run does not send the mail again. The retention is longer than a campaign takes.
const retention = 7 * 24 * time.Hour

// task returns the asynq task that stands for a mail. Its ID is the same in each run of a campaign: asynq takes an ID
// only once.
func (e *emailer) task(m *campaign.Mail, arrived time.Time) *asynq.Task {
	return worker.NewTask(taskType, []byte(m.ID), map[string]string{
		headerWeight:           strconv.FormatInt(m.Units(), 10),
		scopeTenant:            m.Tenant,
		scopeDomain:            m.Domain,
		delivery.HeaderArrived: strconv.FormatInt(arrived.UnixMicro(), 10), // the report needs it
	}, asynq.TaskID(e.campaign.TaskID(m)), asynq.Queue(e.Queue),
		asynq.MaxRetry(sendRetries), asynq.Timeout(sendTimeout), asynq.Retention(retention))
}

// jobOf reads the weight, the keys and the costs of a task from its headers.
func jobOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	headers := task.Headers()
	weight, err := strconv.ParseInt(headers[headerWeight], 10, 64)
	if err != nil {
		return throttle.Job{}, fmt.Errorf("emailer: header %s %q is not an integer", headerWeight, headers[headerWeight])
	}
	return job(weight, headers[scopeTenant], headers[scopeDomain]), nil
}

// job returns the job of a mail: it takes a unit for each recipient, and one connection.
func job(recipients int64, tenant, domain string) throttle.Job {
	return throttle.Job{
		Weight: recipients, Costs: map[string]int64{scopeConnections: 1},
		Keys: map[string]string{scopeTenant: tenant, scopeDomain: domain, scopeConnections: domain},
	}
}

// foresee prints when the last of the mails would start, before they are enqueued.
func (e *emailer) foresee(ctx context.Context, mails []*campaign.Mail) error {
	mails = e.ledger.Fresh(mails)
	if !e.plan || len(mails) == 0 {
		return nil
	}
	jobs := make([]throttle.Job, len(mails))
	for i, m := range mails {
		jobs[i] = job(m.Units(), m.Tenant, m.Domain)
	}
	told, err := inspect.New(e.throttle).Forecast(ctx, jobs)
	if err != nil {
		return fmt.Errorf("forecast: %w", err)
	}
	e.ledger.Foretold(len(mails), told)
	return nil
}

// enqueueAll enqueues the mails when they arrive. Mails that arrive together are one
// batch, and a batch does not wait until earlier batches are planned.
func (e *emailer) enqueueAll(ctx context.Context, began time.Time, batches [][]*campaign.Mail) error {
	var all sync.WaitGroup
	failed := make(chan error, len(batches))
	for i, mails := range batches {
		if i > 0 && !rig.SleepUntil(ctx, began.Add(mails[0].At)) {
			failed <- ctx.Err()
			break
		}
		all.Go(func() {
			if err := e.enqueue(ctx, mails, i > 0); err != nil {
				failed <- fmt.Errorf("enqueue: %w", err)
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// enqueue enqueues mails, planned for their starts. A task that asynq has from an
// earlier run is not enqueued again: it keeps its queue position or slot.
func (e *emailer) enqueue(ctx context.Context, mails []*campaign.Mail, later bool) error {
	arrived := e.Now()
	tasks := make([]*asynq.Task, len(mails))
	for i, m := range mails {
		tasks[i] = e.task(m, arrived)
	}
	e.ledger.Arrived(mails, arrived)
	if !e.plan {
		for _, task := range tasks {
			if _, err := e.client.EnqueueContext(ctx, task); err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
				return err
			}
		}
		return nil
	}
	all, _ := e.planner.EnqueueAll(ctx, tasks) // each task has its own error
	for i, one := range all.Tasks {
		var never *throttle.NeverFitsError
		switch m := mails[i]; {
		case errors.As(one.Err, &never): // a mail heavier than a limit gets no task
			e.ledger.GaveUp(m, one.Err)
		case one.Err == nil, errors.Is(one.Err, asynq.ErrTaskIDConflict):
			e.ledger.Planned(m, one, later)
		default:
			return fmt.Errorf("mail %s: %w", m.ID, one.Err)
		}
	}
	return nil
}
