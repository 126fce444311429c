// Package crawl reports how a crawl went. A Ledger records requests while the crawler runs. Its
// Report compares this record with the servers' access log: which pages were fetched, and whether
// every limit, pause and robots.txt was kept.
package crawl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/frontier"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// mendEvery is how often a run looks for turns that were lost.
const mendEvery = 5 * time.Second

// Ledger records the requests of a crawl. It is safe for concurrent use.
type Ledger struct {
	program             *rig.Program
	seeds               *SeedList
	world               *site.World
	walk                *frontier.Walk
	requests, kilobytes []throttle.Scope
	connections         Connections
	shaper              *worker.Shaper
	visits              visits
	began               time.Time
}

// New returns an empty ledger. The scopes have the limits to check.
func New(p *rig.Program, seeds *SeedList, around *site.World, w *frontier.Walk, requests,
	kilobytes []throttle.Scope, connections Connections) *Ledger {
	p.ShowProgress()
	return &Ledger{program: p, seeds: seeds, world: around, walk: w, requests: requests, kilobytes: kilobytes,
		connections: connections}
}

// Begin notes that a run begins now, and the shaper of its tasks.
func (l *Ledger) Begin(shaper *worker.Shaper) { l.began, l.shaper = time.Now(), shaper }

// Visited notes a request for u, sent at an instant of the local clock, and its answer,
// which is nil if there was none. settled is how many kilobytes the request was charged in the end;
// rules is true if the request was for a robots.txt.
func (l *Ledger) Visited(u *url.URL, task *asynq.Task, granted throttle.Reservation, settled int64, rules bool,
	sent time.Time, a *fetch.Answer) {
	l.visits.Add(visitOf(u, task.Headers(), rules, granted.Start, granted.Job.Costs[throttle.Global], settled))
	if !l.world.ServersLog {
		l.world.Accesses.Add(site.SeenByClient(u, task.Headers()[ScopeIP], a, rules, sent))
	}
}

// Wait shows the progress until all pages have ended or ctx has ended.
func (l *Ledger) Wait(ctx context.Context) error {
	defer l.program.Progress.Finish()
	return account.Watch{Show: l.show, Look: l.mend, Every: mendEvery}.Wait(ctx)
}

func (l *Ledger) mend(ctx context.Context) (over bool) {
	if err := l.walk.Mend(ctx); err != nil {
		l.program.Log.Warn("crawler: lost turns could not be looked for", zap.Error(err))
	}
	return false
}

func (l *Ledger) show(ctx context.Context) (over bool) {
	known, open, over, err := l.walk.Counts(ctx)
	if err != nil {
		l.program.Log.Warn("crawler: pages could not be counted", zap.Error(err))
		return false
	}
	pace := fmt.Sprintf("put back %d times, %d KB in the last second", l.putBacks(),
		l.visits.settledSince(l.program.Now().Add(-time.Second)))
	l.program.Progress.Show(rig.Snapshot{Elapsed: time.Since(l.began), All: known, Ended: known - open,
		What: "pages", Pace: pace})
	return over
}

// putBacks returns how often pages were put back.
func (l *Ledger) putBacks() int64 { return l.shaper.Stats().PutBack }

// result gathers the result of the run, with all instants on Redis' clock.
func (l *Ledger) result(ctx context.Context) (Result, error) {
	offset := l.program.Offset
	accesses := l.world.Accesses.All()
	r := Result{
		seeds: l.seeds.Name, queue: l.program.Queue, Requests: l.requests, kilobytes: l.kilobytes, connections: l.connections,
		by: l.walk.By, began: l.began.Add(offset), Visits: l.visits.all(),
		putBacks: l.putBacks(), inside: l.program.Inside(), recordOf: "client's log",
	}
	r.pauseViolations, r.pauses = site.PauseViolations(accesses)
	for _, a := range accesses {
		a.At, a.Held, a.End = a.At.Add(offset), a.Held.Add(offset), a.End.Add(offset)
		if !a.Until.IsZero() {
			a.Until = a.Until.Add(offset)
		}
		r.Accesses = append(r.Accesses, a)
	}
	var err error
	if r.Pages, err = l.walk.Pages(ctx); err != nil {
		return r, err
	}
	if r.delays, err = l.walk.Delays(ctx); err != nil {
		return r, err
	}
	if l.world.ServersLog {
		r.recordOf = "servers' log"
		r.robotsViolations = l.world.Web.RobotsViolations(accesses, r.rulesElsewhere())
	} else {
		r.robotsViolations, err = l.robotsViolations(ctx, accesses)
	}
	return r, err
}

// robotsViolations counts the requests in the client's own log that their host's
// robots.txt forbids.
func (l *Ledger) robotsViolations(ctx context.Context, accesses []site.Access) (int, error) {
	violations := 0
	known := make(map[string]robots.Rules)
	for _, a := range accesses {
		u, err := url.Parse(a.URL)
		if err != nil {
			return 0, err
		}
		origin := robots.Origin(u)
		rules, asked := known[origin]
		if !asked {
			if rules, _, err = l.walk.Rules(ctx, u); err != nil {
				return 0, err
			}
			known[origin] = rules
		}
		if !a.Rules && !rules.Allows(u.RequestURI()) {
			violations++
		}
	}
	return violations, nil
}

// rulesElsewhere returns the hosts whose robots.txt another run or process has requested, even
// if the answer was only that the robots.txt has moved.
func (r Result) rulesElsewhere() map[string]bool {
	here := make(map[string]bool)
	for _, a := range r.Accesses {
		here[a.Host] = here[a.Host] || a.Rules
	}
	hosts := make(map[string]bool)
	for _, p := range r.Pages {
		u, err := p.Location()
		if err != nil || !p.Robots {
			continue
		}
		if p.Ended != "" && p.By != r.by || p.MovedTo != "" && !here[u.Host] {
			hosts[u.Host] = true
		}
	}
	return hosts
}

// Report is the summary of a run, with the result that it summarizes.
type Report struct {
	Summary
	of Result
}

// Report reports what became of the pages of a run. The argument failed is why the run failed, if it did. A run
// whose context has ended was interrupted. The error is why the run failed, or what could not be read.
func (l *Ledger) Report(ctx context.Context, failed error) (*Report, error) {
	if ctx.Err() != nil {
		failed = nil // the report says so
	}
	r, err := l.result(context.WithoutCancel(ctx))
	err = errors.Join(failed, err)
	r.interrupted = ctx.Err() != nil
	s := summarize(r)
	s.OK = s.OK && err == nil
	return &Report{s, r}, err
}

// Raw returns the result from which the report was made.
func (r *Report) Raw() Result { return r.of }

// Well reports whether every page that was found has ended, and no limit, rule or pause
// was broken.
func (r *Report) Well() bool { return r.OK }

// Write prints the report for a person.
func (r *Report) Write(w io.Writer) { writeReport(w, r.Summary) }

// Plot draws the run into a file, as PNG or SVG by its name.
func (r *Report) Plot(path string) error { return writePlot(path, r.of) }
