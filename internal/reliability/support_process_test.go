package reliability_test

import (
	"context"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

const taskType = "mail"

// process is one of several worker processes. It has clients, a throttle, a shaper and an
// asynq server of its own, with the settings that users get by default.
type process struct {
	shaper *worker.Shaper
	config asynq.Config
	work   redis.UniversalClient
	server *asynq.Server
	once   sync.Once
}

// newProcess makes a process whose throttle decides by one Redis and whose tasks lie in
// another, or the same. The observer gets the throttle's events, and may be nil.
func newProcess(name string, scopes []throttle.Scope, decide, work redis.UniversalClient,
	observer throttle.Observer) (*process, error) {
	th, err := throttle.New(name, decide, scopes, &throttle.Options{Observer: observer, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	shaper, err := worker.New(th, work, jobOf, nil)
	if err != nil {
		return nil, err
	}
	config := shaper.Configure(asynq.Config{
		Concurrency: 48, LogLevel: asynq.FatalLevel,
		// A task whose worker was lost runs again at once.
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	return &process{shaper: shaper, config: config, work: work}, nil
}

func jobOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": task.Headers()["tenant"]}}, nil
}

// run starts the server. The record watches put-backs; the handler calls note with each start.
func (p *process) run(r *record, note func(start) error) error {
	mux := asynq.NewServeMux()
	mux.Use(r.watch, p.shaper.Wrap)
	mux.HandleFunc(taskType, func(ctx context.Context, _ *asynq.Task) error {
		s, err := startOf(ctx)
		if err != nil {
			return err
		}
		return note(s)
	})
	p.server = asynq.NewServerFromRedisClient(p.work, p.config)
	return p.server.Start(mux)
}

// stop ends a process as its main function would, once.
func (p *process) stop() {
	p.once.Do(func() {
		p.shaper.Stop()
		p.server.Shutdown()
	})
}
