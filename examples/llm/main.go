// Llm answers and summarises for several customers through asynq, with a language model
// whose provider limits requests and tokens: interactive prompts, which a person waits for,
// and a batch. Each customer has a budget of tokens a day.
//
//	go run ./examples/llm
//
// needs no other program, no network and no key: Redis and a provider are inside the
// process. See the README.md beside this file for what to copy and what to watch, and -h for
// the flags. Code that begins with ledger or rig serves the report and the checks: your own
// program does not need it.
package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/completion"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// How often and for how long a prompt is tried.
const (
	retries        = 3 // further attempts after status 5xx, or no answer
	taskTimeout    = 2 * time.Minute
	requestTimeout = time.Minute
	firstRetry     = time.Second
	// maxWait is how long before its slot a prompt is woken, so that a busy machine does not start
	// the prompt late. A longer maxWait needs more workers, which are cheap.
	maxWait = time.Second
	// redisTimeout is long, since the Redis inside shares a machine that may be busy.
	redisTimeout = 5 * time.Second
)

// retryDelay doubles with each retry. n counts the retries so far.
func retryDelay(n int, _ error, _ *asynq.Task) time.Duration { return firstRetry << min(n, 10) }

func main() { rig.Main(run) }

// run is the program: it gets the prompts answered and prints the report. It ends early
// when ctx is cancelled.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := rig.New("llm", stdout, stderr)
	defer p.Close()
	o, err := parseOptions(p, args)
	if err != nil {
		return p.Refuse(err)
	}
	a, err := open(ctx, p, o)
	if err != nil {
		return p.Refuse(err)
	}
	return p.Finish(a.run(ctx))
}

// open opens the connections that a run needs, and makes the assistant that uses them.
func open(ctx context.Context, p *rig.Program, o options) (*assistant, error) {
	if err := p.OpenRedis(ctx); err != nil { // connect.Open, or a Redis inside the process
		return nil, err
	}
	upstream, err := provider.Open(p, o.baseURL, o.key, requestTimeout, o.bundled()) // your own client goes here
	if err != nil {
		return nil, err
	}
	a, err := newAssistant(p, o, upstream)
	if err != nil {
		return nil, err
	}
	if err := p.ServeDashboard(ctx, a.throttle.Name(), a.shaper.Stats); err != nil {
		return nil, err
	}
	return a, p.CheckRedis(ctx, a.throttle)
}

// assistant answers prompts. Each prompt is a task; the throttle counts requests and tokens
// and grants its start.
type assistant struct {
	options
	*rig.Program
	throttle *throttle.Throttle
	planner  *worker.Client // enqueues prompts with a plan
	shaper   *worker.Shaper
	server   *asynq.Server
	provider *chat.Client
	ledger   *completion.Ledger // what became of the prompts
}

// newAssistant wires the throttle into asynq. The provider is not called until run.
func newAssistant(p *rig.Program, o options, upstream *provider.Upstream) (*assistant, error) {
	a := &assistant{options: o, Program: p, provider: upstream.Client}
	if p.Queue == "" {
		p.Queue = o.queue()
	}
	var err error
	if a.throttle, err = throttle.New("llm", p.Client, o.scopes(), &throttle.Options{
		FairScope: scopeBudget, Lookahead: o.lookahead(), Mode: o.mode, Timeout: redisTimeout, Logger: p.Log,
	}); err != nil {
		return nil, err
	}
	settings := &worker.Options{MaxWait: maxWait, Logger: p.Log}
	if a.shaper, err = worker.New(a.throttle, p.Client, a.jobOf, settings); err != nil {
		return nil, err
	}
	p.AtClose(a.shaper.Stop) // however the program ends
	if a.planner, err = worker.NewClient(a.throttle, p.Client, a.jobOf, settings); err != nil {
		return nil, err
	}
	a.ledger = completion.New(p, completion.Run{Prompts: o.Prompts(), Upstream: upstream, Scopes: o.scopes(),
		Model: o.model, Window: o.window})
	a.server = asynq.NewServerFromRedisClient(p.Client, a.shaper.Configure(asynq.Config{
		Concurrency:    p.Workers,
		Queues:         map[string]int{p.Queue: 1},
		RetryDelayFunc: retryDelay,
		ErrorHandler:   a.ledger,
		Logger:         p.Log.Named("asynq").Sugar(),
		LogLevel:       p.LogLevel(),
	}))
	return a, nil
}

// run gets the prompts answered and waits until all have ended or ctx ends.
func (a *assistant) run(ctx context.Context) (*completion.Report, error) {
	a.ledger.Watch(a.throttle, a.shaper, a.planner)
	err := a.work(ctx)
	a.shaper.Stop()     // prompts that wait for their start go back to asynq at once
	a.server.Shutdown() // prompts that are being answered are finished
	return a.ledger.Report(ctx, err)
}

// work starts the workers, and enqueues each prompt that no earlier run has ended when it
// arrives. It returns when all prompts have ended.
func (a *assistant) work(ctx context.Context) error {
	left, err := a.ledger.Resume()
	if err != nil {
		return err
	}
	began, err := a.ledger.Begin(ctx)
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(a.shaper.Wrap) // first, so that it is the outermost
	mux.Use(a.ledger.Wrap) // notes each attempt
	mux.HandleFunc(taskType, a.complete)
	if err := a.server.Start(mux); err != nil {
		return fmt.Errorf("asynq: %w", err)
	}
	working, cancel := context.WithCancel(ctx)
	enqueued := make(chan error, 1)
	var aside sync.WaitGroup
	aside.Go(func() { enqueued <- a.enqueueAll(working, began, left) })
	err = a.ledger.Wait(ctx, enqueued)
	cancel()
	aside.Wait()
	return err
}
