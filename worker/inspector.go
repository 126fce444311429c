package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// inspector is asynq's Inspector, which finds no task of a queue that asynq's set of
// queues lacks. asynq's client adds a queue to the set once in its process' life, and asynq's
// server never does. So a queue is missing after asynq's Redis has lost its data, or after
// a person has deleted the queue while it was empty, and its tasks run all the same. This
// inspector adds such a queue, and asks again.
type inspector struct {
	*asynq.Inspector
	client redis.UniversalClient
	log    *zap.Logger
	barred seldom
}

func newInspector(client redis.UniversalClient, log *zap.Logger) *inspector {
	return &inspector{Inspector: asynq.NewInspectorFromRedisClient(client), client: client, log: log}
}

// GetTaskInfo asks asynq. ErrQueueNotFound says nothing about the task: its queue could not be
// added to the set.
func (i *inspector) GetTaskInfo(queue, id string) (info *asynq.TaskInfo, err error) {
	err = i.listed(queue, func() error {
		info, err = i.Inspector.GetTaskInfo(queue, id)
		return err
	})
	return info, err
}

// ask returns the fate of a task that has a reservation, and asynq's answer.
func (i *inspector) ask(task wakeup) (fate, *asynq.TaskInfo, error) {
	info, err := i.GetTaskInfo(task.queue, task.id)
	return fateOf(task.retried, info, err), info, err
}

// RunTask makes a task pending.
func (i *inspector) RunTask(queue, id string) error {
	return i.listed(queue, func() error { return i.Inspector.RunTask(queue, id) })
}

// listed asks, and asks again if the queue had to be added first.
func (i *inspector) listed(queue string, ask func() error) error {
	err := ask()
	if !errors.Is(err, asynq.ErrQueueNotFound) {
		return err
	}
	if err := list(i.client, queue); strings.Contains(err.Error(), "NOPERM") {
		if i.barred.due(time.Minute) {
			i.log.Error("worker: tasks of a queue start late: asynq's set of queues lacks it, and this user of asynq's Redis "+
				"may not add it. Allow SADD on asynq:queues", zap.String("queue", queue), zap.Error(err))
		}
		return fmt.Errorf("%w: %w", errUnlisted, err)
	}
	return ask()
}

// errUnlisted says that asynq's Inspector cannot find the tasks of a queue.
var errUnlisted = errors.New("worker: asynq's set of queues lacks the queue, and must not be written")

// answers reports whether asynq's Redis can be reached. A refusal is an answer.
func (i *inspector) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var refusal redis.Error
	err := i.client.Ping(ctx).Err()
	return err == nil || errors.As(err, &refusal)
}

// list makes asynq's client add a queue to asynq's set, as the client does before it enqueues a
// task. No task is enqueued: the script for that is refused here, so there is always an error.
// Each call takes a client of its own, since a client adds a queue once.
func list(client redis.UniversalClient, queue string) error {
	_, err := asynq.NewClientFromRedisClient(scriptless{client}).Enqueue(asynq.NewTask("list", nil), asynq.Queue(queue))
	return err
}

// scriptless runs no script in Redis.
type scriptless struct{ redis.UniversalClient }

var errScriptless = errors.New("worker: this client runs no scripts")

// EvalSha implements redis.Scripter.
func (scriptless) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return refusedScript(ctx)
}

// Eval implements redis.Scripter.
func (scriptless) Eval(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return refusedScript(ctx)
}

func refusedScript(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(errScriptless)
	return cmd
}
