package reliability_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// childVariable is the environment variable that makes this test binary a worker
// process, and has the settings of the process.
const childVariable = "RELIABILITY_WORKER"

// childSettings are the settings of a worker process. The process writes its starts to lists
// in asynq's Redis, which outlive it.
type childSettings struct {
	Name, Decide, Work string
	Scopes             []throttle.Scope
	Queue              string // the only queue that it works on
	Holds              int64  // it holds this many handlers and this many put-backs, the first that come
}

func (s childSettings) startsKey() string  { return s.Name + ":starts" }  // each start, as JSON
func (s childSettings) heldKey() string    { return s.Name + ":held" }    // tasks whose handler does not end
func (s childSettings) putBackKey() string { return s.Name + ":putback" } // tasks that asynq has not taken back yet

// child is a worker process that can be killed.
type child struct {
	childSettings
	process *exec.Cmd
	leash   io.Closer // the child ends when the leash is closed
}

// startChild starts this test binary as a worker process.
func startChild(t *testing.T, settings childSettings) *child {
	t.Helper()
	c := startSelf(t, childVariable, settings)
	c.childSettings = settings
	return c
}

// startSelf starts this test binary with settings in an environment variable, which says what it becomes.
func startSelf(t *testing.T, variable string, settings any) *child {
	t.Helper()
	text, err := json.Marshal(settings)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	c := &child{process: exec.Command(self)}
	c.process.Env = append(os.Environ(), variable+"="+string(text))
	c.process.Stderr = os.Stderr
	c.leash, err = c.process.StdinPipe()
	must(t, err)
	must(t, c.process.Start())
	t.Cleanup(c.kill)
	return c
}

// kill ends the process as a crash would. It may be called more than once.
func (c *child) kill() {
	_ = c.process.Process.Kill() // the process may be gone
	_ = c.leash.Close()
	_ = c.process.Wait()
}

// beChild runs the worker process. It ends with its parent.
func beChild(text string) error {
	var settings childSettings
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return err
	}
	ctx := context.Background()
	work := redis.NewClient(&redis.Options{Addr: settings.Work})
	p, err := newProcess(settings.Name, settings.Scopes, redis.NewClient(&redis.Options{Addr: settings.Decide}), work, nil)
	if err != nil {
		return err
	}
	p.config.Queues = map[string]int{settings.Queue: 1}
	var starts, putBacks atomic.Int64
	retryDelay := p.config.RetryDelayFunc
	p.config.RetryDelayFunc = func(n int, err error, task *asynq.Task) (wait time.Duration) {
		wait = retryDelay(n, err, task)
		var putBack *worker.PutBackError
		if errors.As(err, &putBack) && putBacks.Add(1) <= settings.Holds {
			// The job is booked or in line; asynq is about to write the task back.
			if err := work.RPush(ctx, settings.putBackKey(), putBack.TaskID).Err(); err != nil {
				panic(err)
			}
			select {}
		}
		return wait
	}
	if err := p.run(newRecord(), func(s start) error {
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if err := work.RPush(ctx, settings.startsKey(), text).Err(); err != nil {
			return err
		}
		if starts.Add(1) <= settings.Holds {
			if err := work.RPush(ctx, settings.heldKey(), s.Task).Err(); err != nil {
				return err
			}
			select {}
		}
		return nil
	}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
