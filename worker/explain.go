package worker

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// Explain tells what is known of a task: what asynq has of it says its job, and the
// throttle the rest (inspect.Inspector.Explain). A task that asynq does not keep any
// more is asynq's error. It blocks for a few round trips.
func (c *Client) Explain(ctx context.Context, queue, id string) (inspect.Explanation, error) {
	info, err := c.inspector.Inspector.GetTaskInfo(queue, id) // which lists no queue
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
