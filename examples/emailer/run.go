package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Exit statuses.
const (
	exitOK     = 0 // every mail arrived exactly once or was refused for good, no window over its limit
	exitNotAll = 1 // not so, or interrupted; the report says what
	exitUsage  = 2 // a flag, the campaign or a server is wrong; nothing was sent
)

// How often a run looks at itself.
const (
	progressEvery = 250 * time.Millisecond
	vanishedEvery = 5 * time.Second
)

// run is the program: it sends the campaign that args ask for and reports. It
// ends early when ctx is cancelled.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	terminal := isTerminal(stderr)
	stderr = zapcore.Lock(zapcore.AddSync(stderr)) // workers log while progress is shown
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errUsage):
		return exitUsage
	case err != nil:
		return complain(stderr, err)
	}
	c, err := openCampaign(o.campaign)
	if err != nil {
		return complain(stderr, err)
	}
	if o.queue == "" {
		o.queue = "emailer-" + c.id
	}
	logger := newLogger(stderr, o.verbose)
	surroundings, err := openSurroundings(ctx, o, logger)
	if err != nil {
		return complain(stderr, err)
	}
	defer surroundings.Close()
	watching, err := startMonitor(ctx, o.metrics, stderr)
	if err != nil {
		return complain(stderr, err)
	}
	defer watching.Close()
	show := newProgress(stderr, terminal, len(c.mails))
	d, err := newDelivery(o, c, surroundings, watching, show, logger)
	if err != nil {
		return complain(stderr, err)
	}
	if o.redis != "" {
		if err := checkRedis(ctx, stderr, d.quotas); err != nil {
			return complain(stderr, err)
		}
	}
	r, err := d.run(ctx, surroundings, show)
	if err != nil {
		fmt.Fprintln(stderr, "emailer:", err)
	}
	return finish(o, r, err, stdout, stderr)
}

// finish reports the run.
func finish(o options, r result, failed error, stdout, stderr io.Writer) int {
	r.firstCome = firstCome(r)
	s := summarize(r)
	s.OK = s.OK && failed == nil
	report := stdout
	if o.json {
		report = stderr
	}
	writeReport(report, s)
	if o.json {
		if err := writeJSON(stdout, s); err != nil {
			fmt.Fprintln(stderr, "emailer:", err)
			return exitNotAll
		}
	}
	if o.plot != "" {
		if err := writePlot(o.plot, r); err != nil {
			fmt.Fprintln(stderr, "emailer:", err)
			return exitNotAll
		}
	}
	if !s.OK {
		return exitNotAll
	}
	return exitOK
}

// run sends the campaign and waits for its end, or for that of ctx.
func (d *delivery) run(ctx context.Context, around *surroundings, show progress) (result, error) {
	began := time.Now()
	batches, err := d.prepare(ctx)
	if err != nil {
		return d.result(began, around), err
	}
	began = time.Now()
	if err := d.start(); err != nil {
		return d.result(began, around), err
	}
	working, cancel := context.WithCancel(ctx)
	enqueued := make(chan error, 1)
	var aside sync.WaitGroup
	aside.Go(func() { enqueued <- d.enqueueAll(working, began, batches) })
	aside.Go(func() { d.warmUp(working, began) })
	aside.Go(func() { d.expectEnds(working) })
	vanished, err := d.watch(ctx, began, enqueued, show)
	cancel()
	d.stop()
	aside.Wait()
	show.finish()
	if err := d.warming.end(context.WithoutCancel(ctx)); err != nil {
		d.say("%v", err)
	}
	r := d.result(began, around)
	r.interrupted = ctx.Err() != nil
	r.vanished = vanished
	return r, err
}

// prepare does what comes before the first mail: it looks for an earlier run, takes
// the first step of a warm-up, and says when the mails are expected to start. It
// returns the mails that are to be sent, by their arrival.
func (d *delivery) prepare(ctx context.Context) ([][]*mail, error) {
	left, resumed, err := d.resume()
	if err != nil {
		return nil, fmt.Errorf("asynq: %w", err)
	}
	if err := d.warming.begin(ctx); err != nil {
		return nil, err
	}
	batches := together(left, resumed)
	if len(batches) == 0 {
		return nil, nil
	}
	return batches, d.foresee(ctx, batches[0])
}

// warmUp takes the steps of the warm-up.
func (d *delivery) warmUp(ctx context.Context, began time.Time) {
	if err := d.warming.run(ctx, began); err != nil && ctx.Err() == nil {
		d.say("%v: its limit stays as it is", err)
	}
}

// expectEnds asks now and then when the last mail will start.
func (d *delivery) expectEnds(ctx context.Context) {
	tick := time.NewTicker(expectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := d.plan.expect(ctx, d.quotas, d.grants.started()); err != nil && ctx.Err() == nil {
				d.say("%v", err)
			}
		}
	}
}

// watch shows the progress until all mails have ended, ctx has, the enqueuing
// failed, or asynq has nothing more to do.
func (d *delivery) watch(ctx context.Context, began time.Time, enqueued <-chan error, show progress) (vanished bool, err error) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	look := time.NewTicker(vanishedEvery)
	defer look.Stop()
	complete, told := false, 0
	for {
		select {
		case <-d.outcomes.done:
			return false, nil
		case <-ctx.Done():
			return false, nil
		case err := <-enqueued:
			if err != nil && ctx.Err() == nil {
				return false, err
			}
			complete, enqueued = true, nil
		case <-look.C:
			if complete && d.vanished() {
				return true, nil
			}
		case <-tick.C:
			pauses := d.pauses.all()
			for _, p := range pauses[told:] {
				d.say("%s asks to wait: nothing starts to it for %.1f s", p.domain, p.until.Sub(p.known).Seconds())
			}
			told = len(pauses)
			show.show(d.snapshot(began))
		}
	}
}

func (d *delivery) snapshot(began time.Time) snapshot {
	now := snapshot{
		elapsed:    time.Since(began),
		mails:      len(d.campaign.mails),
		ended:      len(d.campaign.mails) - d.outcomes.left(),
		putBacks:   d.shaper.Stats().Denied,
		lastSecond: d.grants.unitsSince(d.now().Add(-time.Second)),
	}
	if last := d.plan.last(); !last.IsZero() {
		now.last = last.Sub(began.Add(d.offset))
	}
	return now
}

// result gathers what the run has to say, with the receipts put on Redis' clock.
func (d *delivery) result(began time.Time, around *surroundings) result {
	receipts := around.record.all()
	for i := range receipts {
		receipts[i].at = receipts[i].at.Add(d.offset)
	}
	used, returned := d.grants.all()
	return result{
		campaign: d.campaign, queue: d.queue, law: law{d.scopes, d.warming.changes()}, began: began.Add(d.offset),
		outcomes: d.outcomes.all(), granted: used, returned: returned, pauses: d.pauses.all(), expected: d.plan.all(),
		receipts: receipts, recordOf: around.recordOf, putBacks: d.shaper.Stats().Denied, inside: around.redisInside,
	}
}

func complain(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "emailer:", err)
	return exitUsage
}

// newLogger writes warnings to stderr, or everything.
func newLogger(stderr io.Writer, verbose bool) *zap.Logger {
	level := zapcore.WarnLevel
	if verbose {
		level = zapcore.DebugLevel
	}
	config := zap.NewDevelopmentEncoderConfig()
	config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(config), zapcore.AddSync(stderr), level))
}
