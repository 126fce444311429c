package worker

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/hibiken/asynq"
)

// asynq keeps a task's counts in its context: a struct of an unexported type, under an unexported
// key. No function of asynq makes such a context. GetRetryCount and GetMaxRetry can answer other
// numbers only if that struct is copied with two fields changed. So withCounts finds the fields
// by name, and uses the copy only if asynq's own functions read the new counts from it.

var errOtherContext = errors.New("worker: this version of asynq keeps the counts of a task in another way")

// withCounts returns a copy of ctx from which asynq's functions read these counts.
func withCounts(ctx context.Context, retried, maxRetry int) (context.Context, error) {
	key := asynqsKey()
	if key == nil || !reflect.TypeOf(key).Comparable() {
		return nil, errOtherContext
	}
	was := reflect.ValueOf(ctx.Value(key))
	if was.Kind() != reflect.Struct {
		return nil, errOtherContext
	}
	now := reflect.New(was.Type()).Elem()
	now.Set(was)
	if !setInt(now.FieldByName("retryCount"), retried) || !setInt(now.FieldByName("maxRetry"), maxRetry) {
		return nil, errOtherContext
	}
	own := context.WithValue(ctx, key, now.Interface())
	if countsOf(own) != (asynqCounts{taskOf(ctx), retried, maxRetry}) {
		return nil, errOtherContext
	}
	return own, nil
}

// asynqsKey is the key under which asynq looks up a task's counts in a context.
var asynqsKey = sync.OnceValue(func() any {
	asked := &keyProbe{Context: context.Background()}
	asynq.GetMaxRetry(asked)
	return asked.key
})

// keyProbe is a context that remembers for which key it was asked.
type keyProbe struct {
	context.Context
	key any
}

// Value implements context.Context.
func (p *keyProbe) Value(key any) any {
	p.key = key
	return nil
}

// setInt sets an unexported field of a struct that is our own copy.
func setInt(field reflect.Value, n int) bool {
	if field.Kind() != reflect.Int {
		return false
	}
	*(*int)(field.Addr().UnsafePointer()) = n
	return true
}

type asynqTask struct{ id, queue string }

func taskOf(ctx context.Context) (task asynqTask) {
	task.id, _ = asynq.GetTaskID(ctx)
	task.queue, _ = asynq.GetQueueName(ctx)
	return task
}

type asynqCounts struct {
	asynqTask
	retried, maxRetry int
}

func countsOf(ctx context.Context) asynqCounts {
	counts := asynqCounts{asynqTask: taskOf(ctx)}
	counts.retried, _ = asynq.GetRetryCount(ctx)
	counts.maxRetry, _ = asynq.GetMaxRetry(ctx)
	return counts
}
