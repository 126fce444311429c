package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/owner"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// purged is the result of purge.
type purged struct {
	Throttle string `json:"throttle"`
	Lanes    int    `json:"lanes"`
	Jobs     int    `json:"jobs"`  // jobs that were checked
	Gone     int    `json:"gone"`  // jobs whose task is gone
	Taken    int    `json:"taken"` // jobs taken out of line
	DryRun   bool   `json:"dry_run,omitempty"`
}

func (p *program) purge() *cobra.Command {
	var flow, asynqURL string
	var try bool
	cmd := &cobra.Command{
		Use:   "purge THROTTLE",
		Short: "take jobs out of line whose tasks are gone: deleted, archived, completed or retried",
		Long: "Take jobs out of line whose tasks are gone: deleted, archived, completed or retried.\n" +
			"The workers do that by themselves, when the jobs' turns come; purge does so now.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeThrottle,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			th, err := p.attach(ctx, args[0])
			if err != nil {
				return err
			}
			client, closing, err := p.asynqClient(asynqURL)
			if err != nil {
				return err
			}
			defer closing()
			if err := p.sameDeployment(ctx, th, client); err != nil {
				return err
			}
			u := purging{throttle: th, inspector: asynq.NewInspectorFromRedisClient(client),
				result: purged{Throttle: th.Name(), DryRun: try}}
			if err := u.search(ctx, flow); err != nil {
				return err
			}
			if !try && len(u.gone) > 0 {
				if err := p.confirmed(ctx, fmt.Sprintf("take %s out of line whose tasks are gone?",
					view.Many(len(u.gone), "job"))); err != nil {
					return err
				}
				left, err := th.Leave(ctx, u.gone)
				if err != nil {
					return err
				}
				u.count(left)
			}
			return p.print(u.result, func(g *page) { writePurged(g, u.result) })
		},
	}
	p.sure(cmd)
	cmd.Flags().StringVar(&flow, "flow", "", "only the lanes of this flow, a key of the fair scope")
	cmd.Flags().StringVar(&asynqURL, "asynq", "", "asynq's Redis, if it is another one")
	cmd.Flags().BoolVar(&try, "dry-run", false, "change nothing, count them")
	return cmd
}

// sameDeployment checks that asynq's Redis is the one with these tasks: in another Redis, all tasks
// would seem gone.
func (p *program) sameDeployment(ctx context.Context, th *inspect.Inspector, asynqs redis.UniversalClient) error {
	owning, err := p.client.Get(ctx, owner.Key(th.Name())).Result()
	if errors.Is(err, redis.Nil) {
		return fmt.Errorf(
			"no worker of throttle %s runs, so it is not known which asynq its tasks are in: start one", th.Name())
	}
	if err != nil {
		return err
	}
	deployment, err := asynqs.Get(ctx, owner.DeploymentKey).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if deployment != owning {
		return fmt.Errorf("this is not the asynq that the tasks of throttle %s are in: give its Redis with --asynq",
			th.Name())
	}
	return nil
}

// purging is one search for jobs whose tasks are gone.
type purging struct {
	throttle  *inspect.Inspector
	inspector *asynq.Inspector
	gone      []string // jobs
	result    purged
}

func (u *purging) search(ctx context.Context, flow string) error {
	lanes, err := u.throttle.Lanes(ctx)
	if err != nil {
		return err
	}
	for _, lane := range lanes {
		if flow != "" && lane.Flow != flow {
			continue
		}
		u.result.Lanes++
		for from, more := "", true; more; more = from != "" {
			jobs, next, err := u.throttle.Jobs(ctx, lane.Name, from)
			if err == nil {
				err = u.ask(ctx, jobs)
			}
			if err != nil {
				return err
			}
			from = next
		}
	}
	u.result.Gone = len(u.gone)
	return nil
}

// askers is how many tasks are looked up in asynq at the same time.
const askers = 16

func (u *purging) ask(ctx context.Context, jobs []throttle.Reservation) error {
	gone, errs := make([]bool, len(jobs)), make([]error, len(jobs))
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(askers, len(jobs)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(jobs) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				gone[i], errs[i] = u.isGone(jobs[i].Job.ID)
			}
		})
	}
	group.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return fmt.Errorf("asynq cannot be asked about the tasks: %w", err)
	}
	u.result.Jobs += len(jobs)
	for i, is := range gone {
		if is {
			u.gone = append(u.gone, jobs[i].Job.ID)
		}
	}
	return nil
}

// isGone reports whether a job's task will not come any more. It reports false for a job that is no
// task's, of which nothing is known.
func (u *purging) isGone(job string) (bool, error) {
	queue, id, _, is := worker.TaskOf(job)
	if !is {
		return false, nil
	}
	info, err := u.inspector.GetTaskInfo(queue, id)
	switch {
	case worker.WillNotCome(job, info, err):
		return true, nil
	case errors.Is(err, asynq.ErrQueueNotFound):
		return false, nil // asynq's list lacks the queue: the workers put it there, and look
	}
	return false, err
}

func (u *purging) count(left []bool) {
	for _, did := range left {
		if did {
			u.result.Taken++
		}
	}
}

func writePurged(g *page, r purged) {
	g.line("%s in %s: the tasks of %d are gone", view.Many(r.Jobs, "job"), view.Many(r.Lanes, "lane"), r.Gone)
	switch {
	case r.DryRun:
		g.line("nothing was changed")
	case r.Gone > 0:
		g.line("%d were taken out of line; a task that is run again asks anew", r.Taken)
	}
}
