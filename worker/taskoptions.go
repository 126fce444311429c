package worker

import (
	"crypto/rand"
	"reflect"

	"github.com/hibiken/asynq"
)

// taskOptions are those options of a task by which it is planned.
type taskOptions struct {
	queue, id string
	named     bool // the user gave the ID
	scheduled bool // the user says when it may start, or that it joins a group
}

// asynqDefaultQueue is where asynq puts a task without a Queue option.
const asynqDefaultQueue = "default"

// optionsOf reads the options that a task is enqueued with: its own, and those given at
// Enqueue, which win.
func optionsOf(task *asynq.Task, given []asynq.Option) taskOptions {
	o := taskOptions{queue: asynqDefaultQueue}
	// asynq keeps a task's own options to itself. Passing a TaskID or a Queue over them
	// would silently put another in their place, so they are read where they are.
	if own := reflect.ValueOf(task).Elem().FieldByName("opts"); own.IsValid() && own.Kind() == reflect.Slice {
		for i := range own.Len() {
			option := own.Index(i).Elem()
			if !option.IsValid() {
				continue // nil, which asynq leaves out
			}
			text := ""
			if option.Kind() == reflect.String {
				text = option.String()
			}
			o.read(option.Type().Name(), text)
		}
	}
	for _, option := range given {
		if option == nil {
			continue
		}
		text, _ := option.Value().(string)
		o.read(reflect.TypeOf(option).Name(), text)
	}
	if o.id == "" {
		o.id = rand.Text()
	}
	return o
}

// read takes up one option, by the name that asynq gives its type.
func (o *taskOptions) read(kind, text string) {
	switch kind {
	case "queueOption":
		o.queue = text
	case "taskIDOption":
		o.id, o.named = text, true
	case "processAtOption", "processInOption", "groupOption":
		o.scheduled = true
	}
}
