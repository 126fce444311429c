package worker_test

import (
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestJobIDNamesATask: a job's ID names the queue, the task and the attempt, whatever characters
// their names have, and the ID of any other job names no task.
func TestJobIDNamesATask(t *testing.T) {
	t.Parallel()
	for _, task := range []struct {
		queue, id string
		retried   int
	}{{"mails", "0198f6c2", 0}, {"a/b c", "x/y/3", 12}} {
		queue, id, retried, is := worker.TaskOf(worker.JobID(task.queue, task.id, task.retried))
		if queue != task.queue || id != task.id || retried != task.retried || !is {
			t.Errorf("%+v: %s, %s, %d, %t", task, queue, id, retried, is)
		}
	}
	if _, _, _, is := worker.TaskOf("mail-17"); is {
		t.Error("mail-17 is a task's")
	}
}

// TestWasPutBack: a put-back is known by its text, in any state but archived. A panic with such words is a failure.
func TestWasPutBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state asynq.TaskState
		last  string
		want  bool
	}{
		{asynq.TaskStateRetry, "throttled: starts 2026-11-24T12:00:00Z", true},
		{asynq.TaskStatePending, "throttled: starts 2026-11-24T12:00:00Z", true},
		{asynq.TaskStateRetry, "mails: throttled: Redis cannot decide", true},
		{asynq.TaskStateArchived, "throttled: starts 2026-11-24T12:00:00Z", false},
		{asynq.TaskStateRetry, "panic [mails.go:7]: throttled: by the upstream", false},
		{asynq.TaskStateRetry, "535 denied", false},
		{asynq.TaskStatePending, "", false},
	} {
		if got := worker.WasPutBack(&asynq.TaskInfo{State: c.state, LastErr: c.last}); got != c.want {
			t.Errorf("%s, %q: %t, want %t", c.state, c.last, got, c.want)
		}
	}
}

// TestWillNotCome: a task that was deleted, archived by hand, completed, or is at a later
// attempt does not come.
func TestWillNotCome(t *testing.T) {
	t.Parallel()
	job := worker.JobID("mails", "t", 2)
	info := func(state asynq.TaskState, retried, retry int, last string) *asynq.TaskInfo {
		return &asynq.TaskInfo{State: state, Retried: retried, MaxRetry: retry, LastErr: last}
	}
	for name, test := range map[string]struct {
		job  string
		info *asynq.TaskInfo
		err  error
		want bool
	}{
		"deleted":       {job, nil, asynq.ErrTaskNotFound, true},
		"no queue":      {job, nil, asynq.ErrQueueNotFound, false}, // asynq's list lacks it: it may be there
		"not known":     {job, nil, errors.New("away"), false},
		"no task's":     {"mail-17", nil, asynq.ErrTaskNotFound, false},
		"put back":      {job, info(asynq.TaskStateRetry, 2, 25, "throttled: starts 2026-11-24T12:00:00Z"), nil, false},
		"enqueued anew": {job, info(asynq.TaskStateScheduled, 2, 25, ""), nil, true},
		"later attempt": {job, info(asynq.TaskStateRetry, 3, 25, ""), nil, true},
		"completed":     {job, info(asynq.TaskStateCompleted, 2, 25, ""), nil, true},
		"archived":      {job, info(asynq.TaskStateArchived, 2, 25, ""), nil, true},
		"lost":          {job, info(asynq.TaskStateArchived, 2, 2, asynq.ErrLeaseExpired.Error()), nil, true},
	} {
		if got := worker.WillNotCome(test.job, test.info, test.err); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
