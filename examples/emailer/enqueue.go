package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// retention is how long asynq remembers a delivered mail: so long a second run
// does not send it again.
const retention = 24 * time.Hour

// resume finds out what an earlier run did with the campaign, and returns the mails
// that it did not end; resumed tells that there was one. The arrival of its mails is
// over.
func (d *delivery) resume() (left []*mail, resumed bool, err error) {
	queues, err := d.inspect.Queues()
	if err != nil || !slices.Contains(queues, d.queue) {
		return d.campaign.mails, false, err
	}
	for _, m := range d.campaign.mails {
		info, err := d.inspect.GetTaskInfo(d.queue, d.taskID(m))
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound):
			left = append(left, m)
			continue
		case err != nil:
			return nil, false, err
		}
		resumed = true
		if !d.recall(m, info) {
			left = append(left, m)
		}
	}
	return left, resumed, nil
}

// recall notes what an earlier run did with a mail, and returns false if it left it
// to this one.
func (d *delivery) recall(m *mail, info *asynq.TaskInfo) (ended bool) {
	if arrived, err := strconv.ParseInt(info.Headers[headerArrived], 10, 64); err == nil {
		d.outcomes.arrived(m.id, time.UnixMicro(arrived))
	}
	d.known[m] = true
	switch {
	case info.State == asynq.TaskStateCompleted:
		d.outcomes.endedEarlier(m.id, delivered, "")
	case info.State == asynq.TaskStateArchived && strings.HasPrefix(info.LastErr, refusedPrefix):
		d.outcomes.endedEarlier(m.id, refused, plainReason(info.LastErr))
	case info.State == asynq.TaskStateArchived:
		d.outcomes.endedEarlier(m.id, gaveUp, plainReason(info.LastErr))
	default:
		return false
	}
	return true
}

// together cuts the mails into those that arrive at the same time; all do if an
// earlier run has begun with them.
func together(mails []*mail, resumed bool) [][]*mail {
	var batches [][]*mail
	for i, m := range mails {
		if i == 0 || !resumed && m.at != mails[i-1].at {
			batches = append(batches, nil)
		}
		last := len(batches) - 1
		batches[last] = append(batches[last], m)
	}
	return batches
}

// foresee says when the last of some mails would start, before they are enqueued.
func (d *delivery) foresee(ctx context.Context, mails []*mail) error {
	mails = slices.DeleteFunc(slices.Clone(mails), func(m *mail) bool { return d.known[m] || !fits(m, d.scopes) })
	if d.planner == nil || len(mails) == 0 {
		return nil
	}
	jobs := make([]throttle.Job, len(mails))
	for i, m := range mails {
		jobs[i] = throttle.Job{Weight: m.units(), Keys: keysOf(m)}
	}
	told, err := d.quotas.Forecast(ctx, jobs)
	if err != nil {
		return fmt.Errorf("forecast: %w", err)
	}
	d.plan.foretold(told)
	what := "mails"
	if len(d.known) > 0 {
		what = "mails behind those of an earlier run"
	}
	d.say("forecast: %d %s, the last is expected at +%.1f s", len(mails), what, told.Last.Sub(told.Now).Seconds())
	return nil
}

// enqueueAll hands the mails to asynq when they arrive, those that arrive together
// at once. Nobody waits for the planning of those before.
func (d *delivery) enqueueAll(ctx context.Context, began time.Time, batches [][]*mail) error {
	var all sync.WaitGroup
	failed := make(chan error, len(batches))
	for i, mails := range batches {
		if i > 0 && !sleepUntil(ctx, began.Add(mails[0].at)) {
			failed <- ctx.Err()
			break
		}
		all.Go(func() {
			if err := d.enqueue(ctx, mails, i > 0); err != nil {
				failed <- fmt.Errorf("enqueue: %w", err)
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// enqueue hands mails to asynq, planned for their starts. A task that asynq has from
// an earlier run it takes no second time: that one keeps its place.
func (d *delivery) enqueue(ctx context.Context, mails []*mail, later bool) error {
	arrived := d.now()
	tasks := make([]*asynq.Task, len(mails))
	for i, m := range mails {
		if !d.known[m] {
			d.outcomes.arrived(m.id, arrived)
		}
		tasks[i] = d.task(m, arrived)
	}
	if d.planner == nil {
		for _, task := range tasks {
			if _, err := d.client.EnqueueContext(ctx, task); err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
				return err
			}
		}
		return nil
	}
	all, _ := d.planner.EnqueueAll(ctx, tasks) // each task has its own error
	for i, one := range all.Tasks {
		var never *throttle.NeverFitsError
		switch m := mails[i]; {
		case errors.As(one.Err, &never):
			d.outcomes.end(m.id, gaveUp, one.Err.Error())
		case one.Err == nil, errors.Is(one.Err, asynq.ErrTaskIDConflict):
			d.plan.planned(m, one, later)
		default:
			return fmt.Errorf("mail %s: %w", m.id, one.Err)
		}
	}
	return nil
}

// task is the asynq task that stands for a mail.
func (d *delivery) task(m *mail, arrived time.Time) *asynq.Task {
	return worker.NewTask(taskType, []byte(m.id), map[string]string{
		headerWeight:  strconv.FormatInt(m.units(), 10),
		headerTenant:  m.tenant,
		headerDomain:  m.domain,
		headerArrived: strconv.FormatInt(arrived.UnixMicro(), 10),
	}, asynq.TaskID(d.taskID(m)), asynq.Queue(d.queue), asynq.MaxRetry(sendRetries), asynq.Timeout(sendTimeout), asynq.Retention(retention))
}

// taskID is the same in each run of a campaign: asynq takes an id only once.
func (d *delivery) taskID(m *mail) string { return d.campaign.id + "-" + m.id }

// keysOf are the scope keys that a mail is counted under.
func keysOf(m *mail) map[string]string {
	return map[string]string{scopeTenant: m.tenant, scopeDomain: m.domain}
}
