package worker

import (
	"crypto/rand"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/hibiken/asynq"
)

// taskOptions are the options of a task that matter to its plan.
type taskOptions struct {
	queue, id string
	named     bool // the user gave the ID
	scheduled bool // the user gave the task a time or a group
	deadline  time.Time
	expires   time.Time // by ExpiresIn; zero without it
}

// asynqDefaultQueue is where asynq puts a task without a Queue option.
const asynqDefaultQueue = "default"

// ownOptions are the options that a task was made with. The plan needs them, and so does a copy of
// the task (marked). asynq keeps them in a private field, and has no function that returns them, so they
// are read from that field. known is false if there is no such field.
func ownOptions(task *asynq.Task) (own []asynq.Option, known bool) {
	field := reflect.ValueOf(task).Elem().FieldByName("opts")
	if !field.IsValid() {
		return nil, false
	}
	own, known = reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Interface().([]asynq.Option)
	return own, known
}

// optionsOf reads the options that a task is enqueued with: its own, and those given at
// Enqueue, which win.
func optionsOf(own, given []asynq.Option) taskOptions {
	o := taskOptions{queue: asynqDefaultQueue}
	now := time.Now()
	comes, expires, within := now, false, time.Duration(0)
	for _, option := range slices.Concat(own, given) {
		if option == nil {
			continue // asynq leaves it out
		}
		text, _ := option.Value().(string)
		switch option.Type() {
		case asynq.QueueOpt:
			o.queue = text
		case asynq.TaskIDOpt:
			o.id, o.named = text, true
		case asynq.ProcessAtOpt:
			o.scheduled = true
			comes, _ = option.Value().(time.Time)
		case asynq.ProcessInOpt:
			o.scheduled = true
			in, _ := option.Value().(time.Duration)
			comes = now.Add(in)
		case asynq.GroupOpt:
			o.scheduled = true
		case asynq.DeadlineOpt:
			o.deadline, _ = option.Value().(time.Time)
		case expiresInOpt:
			within, expires = option.Value().(time.Duration)
		default: // the plan does not depend on it
		}
	}
	if expires && comes.Before(now) {
		comes = now
	}
	if expires {
		o.expires = comes.Add(within)
	}
	if o.id == "" {
		o.id = rand.Text()
	}
	return o
}

// marked is a copy of a task with one more header.
func marked(task *asynq.Task, own []asynq.Option, header, value string) *asynq.Task {
	headers := make(map[string]string, len(task.Headers())+1)
	maps.Copy(headers, task.Headers())
	headers[header] = value
	return asynq.NewTaskWithHeaders(task.Type(), task.Payload(), headers, slices.Clip(own)...)
}
