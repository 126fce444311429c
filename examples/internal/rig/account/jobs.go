package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
)

// Jobs keeps what became of each job of a run, by its ID. It is safe for concurrent use.
type Jobs[T any] struct {
	mu   sync.Mutex
	of   map[string]T
	open map[string]bool
	done chan struct{}
}

// NewJobs returns an account of jobs that have not ended.
func NewJobs[T any](of map[string]T) *Jobs[T] {
	j := &Jobs[T]{of: of, open: make(map[string]bool), done: make(chan struct{})}
	for id := range of {
		j.open[id] = true
	}
	return j
}

// Note changes what is known of a job. A job that the account does not have is left out.
func (j *Jobs[T]) Note(id string, note func(*T)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(id, note)
}

func (j *Jobs[T]) note(id string, note func(*T)) {
	if one, known := j.of[id]; known {
		note(&one)
		j.of[id] = one
	}
}

// End notes how a job ended. Only its first end counts.
func (j *Jobs[T]) End(id string, note func(*T)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.open[id] {
		return
	}
	j.note(id, note)
	if delete(j.open, id); len(j.open) == 0 {
		close(j.done)
	}
}

// Left returns how many jobs have not ended.
func (j *Jobs[T]) Left() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.open)
}

// Done returns a channel that is closed when the last job ends.
func (j *Jobs[T]) Done() <-chan struct{} { return j.done }

// All returns a copy of what is known, by the jobs' IDs.
func (j *Jobs[T]) All() map[string]T {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make(map[string]T, len(j.of))
	for id, one := range j.of {
		all[id] = one
	}
	return all
}

// Tasks returns the tasks that asynq has in a queue, of those with the given IDs.
func Tasks(inspect *asynq.Inspector, queue string, ids []string) (map[string]*asynq.TaskInfo, error) {
	queues, err := inspect.Queues()
	if err != nil {
		return nil, fmt.Errorf("asynq: %w", err)
	}
	if !slices.Contains(queues, queue) {
		return nil, nil
	}
	tasks := make(map[string]*asynq.TaskInfo)
	for _, id := range ids {
		info, err := inspect.GetTaskInfo(queue, id)
		switch {
		case err == nil:
			tasks[id] = info
		case !errors.Is(err, asynq.ErrTaskNotFound):
			return nil, fmt.Errorf("asynq: %w", err)
		}
	}
	return tasks, nil
}

// IsLast reports whether asynq gives no other attempt to a task that has failed with err.
func IsLast(ctx context.Context, err error) bool {
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	return errors.Is(err, asynq.SkipRetry) || retried >= most
}

// PlainReason returns an error's text without what was added for asynq.
func PlainReason(text string) string { return strings.TrimSuffix(text, ": "+asynq.SkipRetry.Error()) }
