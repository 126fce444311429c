// Emailer sends a campaign of mails through asynq and over SMTP. Quotas of each tenant, of each recipient domain and of
// all mails together shape it.
//
//	go run ./examples/emailer
//
// needs no other program: Redis and the SMTP server are inside the process. See
// the README.md beside this file for what to copy and what to watch, and -h for the
// flags. Code that begins with ledger or rig serves the report and the checks: your own
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
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/delivery"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// How a mail is tried.
const (
	sendRetries = 5 // further attempts after a 4xx or a broken connection
	sendTimeout = time.Minute
	// redisTimeout is long, since the Redis inside shares a machine that may be busy.
	redisTimeout = 5 * time.Second
	// maxWait wakes mails well before their slot, so that a busy machine does not
	// start them late. It needs more workers, which are cheap: with fewer workers
	// than mails that start in this time, the other mails wait in asynq's queue,
	// where no tenant has its turn.
	maxWait = time.Second
)

func main() { rig.Main(run) }

// run is the program: it sends the campaign that args name and prints the report.
// It ends early when ctx is cancelled.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := rig.New("emailer", stdout, stderr)
	defer p.Close()
	o, err := parseOptions(p, args)
	if err != nil {
		return p.Refuse(err)
	}
	e, err := newEmailer(ctx, p, o)
	if err != nil {
		return p.Refuse(err)
	}
	err = e.run(ctx)
	return p.Finish(e.ledger.Report(err), err)
}

// emailer sends one campaign: it enqueues the mails, and its workers send
// them when the throttle grants a start.
type emailer struct {
	options
	*rig.Program
	campaign *campaign.Campaign
	throttle *throttle.Throttle
	planner  *worker.Client // enqueues mails with a plan
	client   *asynq.Client  // enqueues mails without one
	shaper   *worker.Shaper
	server   *asynq.Server
	mailer   *smtp.Mailer
	ledger   *delivery.Ledger // what became of the mails
	looks    asynq.Config     // how often asynq looks for tasks; zero for the shaper's intervals
}

// newEmailer opens what a run needs, and wires it. Nothing is sent until run.
func newEmailer(ctx context.Context, p *rig.Program, o options) (*emailer, error) {
	e := &emailer{options: o, Program: p}
	var err error
	if e.campaign, err = campaign.Open(o.campaignFile); err != nil {
		return nil, err
	}
	if err := p.OpenRedis(ctx); err != nil { // connect.Open, or a Redis inside the process
		return nil, err
	}
	if e.mailer, err = smtp.Open(ctx, p, o.smtp); err != nil { // your own mailer goes here
		return nil, err
	}
	if err := e.wire(ctx); err != nil {
		return nil, err
	}
	return e, p.CheckRedis(ctx, e.throttle)
}

// wire makes the throttle, and the parts of asynq that it shapes.
func (e *emailer) wire(ctx context.Context) error {
	p := e.Program
	if p.Queue == "" {
		p.Queue = "emailer-" + e.campaign.ID
	}
	monitor, err := p.ServeMetrics(ctx, e.metrics)
	if err != nil {
		return err
	}
	connections := throttle.Scope{Name: scopeConnections, Limits: []throttle.Limit{throttle.Running(e.connections)}}
	e.ledger = delivery.New(p, e.campaign, e.mailer, e.scopes, connections.Limits[0])
	observer := e.ledger.Observe(monitor.Collector) // the collector of the package metrics
	shaping := &throttle.Options{Observer: observer, Logger: p.Log, Timeout: redisTimeout}
	if e.throttle, err = throttle.New("emailer", p.Client, append(e.scopes, connections), shaping); err != nil {
		return err
	}
	monitor.Watch(e.throttle)
	settings := &worker.Options{MaxWait: maxWait, Logger: p.Log}
	if e.shaper, err = worker.New(e.throttle, p.Client, jobOf, settings); err != nil {
		return err
	}
	p.AtClose(e.shaper.Stop) // however the program ends
	if e.planner, err = worker.NewClient(e.throttle, p.Client, jobOf, settings); err != nil {
		return err
	}
	e.client = asynq.NewClientFromRedisClient(p.Client)
	e.server = asynq.NewServerFromRedisClient(p.Client, e.shaper.Configure(asynq.Config{
		Concurrency:       p.Workers,
		Queues:            map[string]int{p.Queue: 1},
		RetryDelayFunc:    retryDelay,
		ErrorHandler:      e.ledger,
		Logger:            p.Log.Named("asynq").Sugar(),
		LogLevel:          p.LogLevel(),
		TaskCheckInterval: e.looks.TaskCheckInterval, DelayedTaskCheckInterval: e.looks.DelayedTaskCheckInterval,
	}))
	return p.ServeDashboard(ctx, e.throttle.Name(), e.shaper.Stats)
}

// retryDelay is short because the campaign is short; real greylisting servers ask
// for minutes. n counts the retries so far.
func retryDelay(n int, _ error, _ *asynq.Task) time.Duration {
	return min(2*time.Second<<min(n, 10), time.Minute)
}

// run sends the campaign and waits until the campaign or ctx ends.
func (e *emailer) run(ctx context.Context) error {
	e.ledger.Watch(e.throttle, e.shaper)
	batches, err := e.prepare(ctx)
	if err != nil {
		return err
	}
	began := e.ledger.Begin()
	mux := asynq.NewServeMux()
	mux.Use(e.shaper.Wrap) // first, so that it is the outermost
	mux.Use(e.ledger.Wrap) // notes each attempt
	mux.HandleFunc(taskType, e.send)
	if err := e.server.Start(mux); err != nil {
		return fmt.Errorf("asynq: %w", err)
	}
	working, cancel := context.WithCancel(ctx)
	enqueued := make(chan error, 1)
	var aside sync.WaitGroup
	aside.Go(func() { enqueued <- e.enqueueAll(working, began, batches) })
	aside.Go(func() { e.keepRaising(working, began) })
	err = e.ledger.Wait(ctx, enqueued)
	cancel()
	e.shaper.Stop()     // mails that wait for their start go back to asynq at once
	e.server.Shutdown() // mails that are being sent are finished
	aside.Wait()
	e.endRaise(context.WithoutCancel(ctx))
	return err
}

// prepare runs before the first mail: it finds what an earlier run has left, takes the
// first step of the raise, and says when the mails are expected to start. It returns
// the mails to send, by their arrival.
func (e *emailer) prepare(ctx context.Context) ([][]*campaign.Mail, error) {
	batches, err := e.ledger.Resume()
	if err != nil {
		return nil, err
	}
	if err := e.beginRaise(ctx); err != nil {
		return nil, err
	}
	if len(batches) == 0 {
		return nil, nil
	}
	return batches, e.foresee(ctx, batches[0])
}
