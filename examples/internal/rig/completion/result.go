package completion

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// result is the raw material of the summary. All instants are on Redis' clock.
type result struct {
	model    string
	queue    string
	window   time.Duration // the length of the provider's windows
	scopes   []throttle.Scope
	began    time.Time
	outcomes []outcome // in the order of the prompts' arrival
	granted  []grant   // the earliest first
	requests []provider.Request
	recordOf string
	served   []level // what the provider served when, the earliest first
	charged  int64   // tokens, to the budgets, by the throttle's account
	putBacks int64
	inside   bool // Redis was inside the process: prompts that are left are gone
	ownSays  bool // the provider keeps the record itself
	tomorrow bool // the remaining prompts wait for tomorrow's budgets

	interrupted bool
}

// level is what the provider serves from an instant on.
type level struct {
	from   time.Time
	limits provider.Limits
}

// result gathers the result of the run.
func (l *Ledger) result(ctx context.Context) (result, error) {
	offset := l.program.Offset
	r := result{
		model: l.Model, queue: l.program.Queue, window: l.Window, scopes: l.Scopes,
		began:    l.began.Add(offset),
		outcomes: l.ended(), granted: l.grants.all(), requests: l.Upstream.Record.All(),
		recordOf: l.Upstream.RecordOf(),
		putBacks: l.shaper.Stats().PutBack, inside: l.program.Inside(), ownSays: l.Upstream.Inside != nil,
		tomorrow: l.tomorrow, interrupted: l.interrupted,
	}
	for i := range r.requests {
		one := &r.requests[i]
		one.At = one.At.Add(offset)
		if !one.End.IsZero() {
			one.End = one.End.Add(offset)
		}
	}
	r.served = l.levels(offset)
	now, err := l.budgets(ctx)
	for customer, used := range now {
		r.charged += used - l.spent[customer]
	}
	return r, err
}

// ended returns what became of the prompts so far, by their arrival.
func (l *Ledger) ended() []outcome {
	all := l.outcomes.All()
	list := make([]outcome, len(l.Prompts))
	for i, p := range l.Prompts {
		list[i] = all[p.ID]
	}
	return list
}

// levels returns what the provider served when. A real provider is taken to serve its limits.
func (l *Ledger) levels(offset time.Duration) []level {
	all := []level{{from: l.began.Add(offset), limits: l.configured()}}
	if p := l.Upstream.Inside; p != nil {
		for _, at := range p.Changes() {
			limits, _ := p.Limits(l.Model, at)
			all = append(all, level{at.Add(offset), limits})
		}
	}
	return all
}

// configured returns the provider's limits as the throttle is configured with them.
func (l *Ledger) configured() provider.Limits {
	var limits provider.Limits
	for _, scope := range l.Scopes {
		switch scope.Name {
		case ScopeRequests:
			limits.Requests = scope.Limits[0].Units
		case ScopeTokens:
			limits.Tokens = scope.Limits[0].Units
		}
	}
	return limits
}

// since returns an instant in seconds from the beginning.
func (r result) since(instant time.Time) float64 { return instant.Sub(r.began).Seconds() }

// answers returns the requests that were served.
func (r result) answers() []provider.Request {
	var served []provider.Request
	for _, one := range r.requests {
		if !one.Refused {
			served = append(served, one)
		}
	}
	return served
}

// byID returns the prompts by their IDs.
func (r result) byID() map[string]*prompt.Prompt {
	known := make(map[string]*prompt.Prompt, len(r.outcomes))
	for _, o := range r.outcomes {
		known[o.prompt.ID] = o.prompt
	}
	return known
}

// Report is the summary of a run, and what it was made of.
type Report struct {
	Summary
	of result
}

// Report reports what became of the prompts of a run. The argument failed is why the run failed, if it did. The error
// is why the run failed, or what could not be found out.
func (l *Ledger) Report(ctx context.Context, failed error) (*Report, error) {
	r, err := l.result(context.WithoutCancel(ctx))
	err = errors.Join(failed, err)
	s := summarize(r)
	s.OK = s.OK && err == nil
	return &Report{s, r}, err
}

// Well reports whether every prompt has ended, or waits for tomorrow, and every limit and
// budget was kept.
func (r *Report) Well() bool { return r.OK }

// Write prints the report for a person.
func (r *Report) Write(w io.Writer) { writeReport(w, r.Summary) }

// Plot draws the run into a file, as PNG or SVG by its name.
func (r *Report) Plot(path string) error { return writePlot(path, r.of) }
