package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Exit statuses.
const (
	exitOK     = 0 // every page that was found has ended, and no limit, rule or pause was broken
	exitNotAll = 1 // not so, or interrupted; the report says what
	exitUsage  = 2 // a flag, the seeds or a server is wrong; nothing was requested
)

// How often a run looks at itself.
const (
	progressEvery = 250 * time.Millisecond
	mendEvery     = 5 * time.Second
)

// run is the program: it crawls what args ask for and reports. It ends early when
// ctx is cancelled.
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
	seeds, err := openSeeds(o.seeds)
	if err != nil {
		return complain(stderr, err)
	}
	if o.queue == "" {
		o.queue = "crawler-" + seeds.id
	}
	logger := newLogger(stderr, o.verbose)
	surroundings, err := openSurroundings(ctx, o)
	if err != nil {
		return complain(stderr, err)
	}
	defer surroundings.Close()
	c, err := newCrawl(o, surroundings, logger)
	if err != nil {
		return complain(stderr, err)
	}
	if o.redis != "" {
		if err := checkRedis(ctx, stderr, c.throttle); err != nil {
			return complain(stderr, err)
		}
	}
	r, err := c.run(ctx, seeds, surroundings, newProgress(stderr, terminal))
	if err != nil {
		fmt.Fprintln(stderr, "crawler:", err)
	}
	return finish(o, r, err, stdout, stderr)
}

// finish reports the run.
func finish(o options, r result, failed error, stdout, stderr io.Writer) int {
	s := summarize(r)
	s.OK = s.OK && failed == nil
	report := stdout
	if o.json {
		report = stderr
	}
	writeReport(report, s)
	if o.json {
		if err := writeJSON(stdout, s); err != nil {
			fmt.Fprintln(stderr, "crawler:", err)
			return exitNotAll
		}
	}
	if o.plot != "" {
		if err := writePlot(o.plot, r); err != nil {
			fmt.Fprintln(stderr, "crawler:", err)
			return exitNotAll
		}
	}
	if !s.OK {
		return exitNotAll
	}
	return exitOK
}

// run crawls and waits for the end of it, or for that of ctx.
func (c *crawl) run(ctx context.Context, seeds *seedList, around *surroundings, show progress) (result, error) {
	began := time.Now()
	err := c.start(ctx, seeds.seeds)
	if err == nil {
		err = c.watch(ctx, began, show)
	}
	c.stop()
	show.finish()
	if ctx.Err() != nil {
		err = nil // the report says so
	}
	r, resultErr := c.result(context.WithoutCancel(ctx), began, seeds, around)
	r.interrupted = ctx.Err() != nil
	return r, errors.Join(err, resultErr)
}

// watch shows the progress until all pages have ended, or ctx has.
func (c *crawl) watch(ctx context.Context, began time.Time, show progress) error {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	mend := time.NewTicker(mendEvery)
	defer mend.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-mend.C:
			if err := c.mend(ctx); err != nil {
				c.log.Warn("crawler: turns could not be looked after", zap.Error(err))
			}
		case <-tick.C:
			known, open, over, err := c.frontier.counts(ctx)
			if err != nil {
				c.log.Warn("crawler: pages could not be counted", zap.Error(err))
				continue
			}
			if over {
				return nil
			}
			show.show(snapshot{
				elapsed: time.Since(began), pages: known, ended: known - open,
				putBacks: c.putBacks(), lastSecond: c.visits.settledSince(c.now().Add(-time.Second)),
			})
		}
	}
}

// now is the time on Redis' clock.
func (c *crawl) now() time.Time { return time.Now().Add(c.offset) }

// result gathers what the run has to say, with all instants on Redis' clock.
func (c *crawl) result(ctx context.Context, began time.Time, seeds *seedList, around *surroundings) (result, error) {
	accesses := around.accesses.all()
	r := result{
		seeds: seeds, options: c.options, by: c.frontier.by, began: began.Add(c.offset), visits: c.visits.all(),
		putBacks: c.putBacks(), inside: around.redisInside, recordOf: "client's log",
	}
	r.pauseViolations, r.pauses = pauseViolations(accesses)
	if around.serversLog {
		r.recordOf = "servers' log"
	}
	for _, a := range accesses {
		a.at, a.end = a.at.Add(c.offset), a.end.Add(c.offset)
		if !a.until.IsZero() {
			a.until = a.until.Add(c.offset)
		}
		r.accesses = append(r.accesses, a)
	}
	var err error
	if r.pages, err = c.frontier.pages(ctx); err != nil {
		return r, err
	}
	if r.delays, err = c.frontier.delays(ctx); err != nil {
		return r, err
	}
	if around.serversLog {
		r.robotsViolations = around.web.robotsViolations(accesses, r.rulesElsewhere())
	} else {
		r.robotsViolations, err = c.robotsViolations(ctx, accesses)
	}
	return r, err
}

// rulesElsewhere is the hosts whose robots.txt another run or process has asked for,
// if only to learn that it has moved.
func (r result) rulesElsewhere() map[string]bool {
	here := make(map[string]bool)
	for _, a := range r.accesses {
		here[a.host] = here[a.host] || a.rules
	}
	hosts := make(map[string]bool)
	for _, p := range r.pages {
		u, err := p.location()
		if err != nil || !p.Robots {
			continue
		}
		if p.Ended != "" && p.By != r.by || p.MovedTo != "" && !here[u.Host] {
			hosts[u.Host] = true
		}
	}
	return hosts
}

func complain(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "crawler:", err)
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
