package worker

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// Explain returns what is known of a task. It makes the job from asynq's copy of the task, and
// asks the throttle (inspect.Inspector.Explain). For a task that asynq no longer keeps the
// error is asynq's. It blocks for a few round trips.
func (c *Client) Explain(ctx context.Context, queue, id string) (inspect.Explanation, error) {
	info, err := c.inspector.Inspector.GetTaskInfo(queue, id) // asynq's own, since looking must not add a queue
	if err != nil {
		return inspect.Explanation{}, fmt.Errorf("worker: task %s of queue %s: %w", id, queue, err)
	}
	job, err := jobOf(ctx, c.job, asynq.NewTaskWithHeaders(info.Type, info.Payload, info.Headers))
	if err != nil {
		return inspect.Explanation{}, err
	}
	job.ID = JobID(queue, id, info.Retried)
	return c.looks.Explain(ctx, job)
}
