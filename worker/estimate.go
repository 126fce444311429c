package worker

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// estimated returns a JobFunc that gives each job without a Weight the Estimator's estimate.
func (o *Options) estimated(ask JobFunc) JobFunc {
	if o.Estimator == nil {
		return ask
	}
	return func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
		job, err := ask(ctx, task)
		if err == nil && job.Weight == 0 {
			job.Weight = o.Estimator.Estimate(o.kindOf(task))
		}
		return job, err
	}
}

// learn tells the Estimator to how many units a task was settled.
func (o *Options) learn(task *asynq.Task, actual int64) {
	if o.Estimator == nil {
		return
	}
	var kind string
	var size int64
	if guarded(o.Logger, "Options.Kind", func() { kind, size = o.kindOf(task) }) {
		o.Estimator.Learn(kind, size, actual)
	}
}

// kindOf returns the kind and the size of a task: by Options.Kind, or the task's type and no size.
func (o *Options) kindOf(task *asynq.Task) (kind string, size int64) {
	if o.Kind == nil {
		return task.Type(), 0
	}
	return o.Kind(task)
}
