package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// defaultWarmup lets the new sender of the bundled campaign begin slowly.
const defaultWarmup = "vandelay=0s 2/1s; 10s 4/1s; 15s 8/1s; 20s -"

// warmup is a tenant whose limit grows in steps, as receivers want it of a new
// sender. The zero value is none.
type warmup struct {
	tenant string
	steps  []step
}

// step is the limit from some time after the beginning on.
type step struct {
	after time.Duration
	limit throttle.Limit // the zero Limit: those of the configuration
}

func (s step) String() string {
	if s.limit == (throttle.Limit{}) {
		return "as all"
	}
	return s.limit.String()
}

// parseWarmup reads "tenant=0s 2/1s; 10s 4/1s; 20s -": from when on which limit; the
// dash stands for what all tenants have.
func parseWarmup(text string) (warmup, error) {
	if strings.TrimSpace(text) == "" {
		return warmup{}, nil
	}
	tenant, steps, ok := strings.Cut(text, "=")
	w := warmup{tenant: strings.TrimSpace(tenant)}
	if !ok || w.tenant == "" {
		return w, fmt.Errorf("warmup: %q is not tenant=time limit;…", text)
	}
	for part := range strings.SplitSeq(steps, ";") {
		if err := w.add(part); err != nil {
			return w, fmt.Errorf("warmup: %q: %w", strings.TrimSpace(part), err)
		}
	}
	return w, nil
}

func (w *warmup) add(text string) error {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return errors.New("is not a time and a limit, such as 10s 4/1s")
	}
	var s step
	var err error
	if s.after, err = time.ParseDuration(fields[0]); err != nil || s.after < 0 || s.after > maxArrival {
		return fmt.Errorf("%s is not a duration from 0s to %s", fields[0], maxArrival)
	}
	if fields[1] != "-" {
		if s.limit, err = throttle.ParseLimit(fields[1]); err != nil {
			return err
		}
	}
	if n := len(w.steps); n > 0 {
		switch last := w.steps[n-1]; {
		case last.limit == (throttle.Limit{}):
			return errors.New("comes after the last step")
		case s.after <= last.after:
			return errors.New("comes before the step before it")
		case s.limit != (throttle.Limit{}) && (s.limit.Window != last.limit.Window || s.limit.Units <= last.limit.Units):
			return fmt.Errorf("is not more than %s in the same window", last.limit)
		}
	}
	w.steps = append(w.steps, s)
	return nil
}

// among tells whether the campaign has mails of the tenant.
func (w warmup) among(c *campaign) bool {
	for _, m := range c.mails {
		if m.tenant == w.tenant {
			return true
		}
	}
	return false
}

// warming takes the steps of a warm-up, and remembers when. It is safe for
// concurrent use.
type warming struct {
	warmup
	quotas *throttle.Throttle
	now    func() time.Time // on Redis' clock
	say    func(format string, args ...any)

	mu   sync.Mutex
	done []change
}

// begin takes the steps that are due at the beginning.
func (w *warming) begin(ctx context.Context) error { return w.take(ctx, 0) }

// run takes the others, and ends with the last or with ctx. Call it once.
func (w *warming) run(ctx context.Context, began time.Time) error {
	for _, s := range w.steps {
		if s.after == 0 {
			continue
		}
		if !sleepUntil(ctx, began.Add(s.after)) {
			return nil
		}
		if err := w.take(ctx, s.after); err != nil {
			return err
		}
	}
	return nil
}

// take takes the step of a time, if there is one.
func (w *warming) take(ctx context.Context, after time.Duration) error {
	for _, s := range w.steps {
		if s.after != after {
			continue
		}
		if err := w.set(ctx, s.limit); err != nil {
			return err
		}
		w.say("%s may start %s", w.tenant, s)
	}
	return nil
}

func (w *warming) set(ctx context.Context, limit throttle.Limit) error {
	c := change{at: w.now(), scope: scopeTenant, key: w.tenant}
	var err error
	if limit == (throttle.Limit{}) {
		err = w.quotas.ResetLimits(ctx, scopeTenant, w.tenant)
	} else {
		c.limits = []throttle.Limit{limit}
		err = w.quotas.SetLimits(ctx, scopeTenant, w.tenant, c.limits)
	}
	if err != nil {
		return fmt.Errorf("warm-up of %s: %w", w.tenant, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, c)
	return nil
}

// changes are the steps so far.
func (w *warming) changes() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]change(nil), w.done...)
}

// end takes back what is set, which would outlive this run in Redis.
func (w *warming) end(ctx context.Context) error {
	done := w.changes()
	if n := len(done); n == 0 || done[n-1].limits == nil {
		return nil
	}
	return w.set(ctx, throttle.Limit{})
}

// warmupStep is what one step of a warm-up let out.
type warmupStep struct {
	Tenant  string  `json:"tenant"`
	Limit   string  `json:"limit"`
	FromS   float64 `json:"from_s"`
	UntilS  float64 `json:"until_s"`
	Mails   int     `json:"mails"`
	Units   int64   `json:"units"`
	Fullest int64   `json:"fullest_window_units"` // of the limit's window; 0 for the last step
}

// warmed says what each step let out, up to the tenant's last start.
func (r result) warmed() []warmupStep {
	var steps []warmupStep
	events := eventsByKey(grantEvents(r.granted), scopeTenant)
	for i, c := range r.law.changes {
		until := r.end().Add(time.Microsecond)
		if i+1 < len(r.law.changes) {
			until = r.law.changes[i+1].at
		}
		s := warmupStep{Tenant: c.key, Limit: "as all", FromS: max(0, r.since(c.at)), UntilS: r.since(until)}
		inForce := func(at int64) bool { return at >= c.at.UnixMicro() && at < until.UnixMicro() }
		if len(c.limits) == 1 {
			s.Limit = c.limits[0].String()
			s.Fullest, _ = fullestWindow(events[c.key], throttle.Unlimited, c.limits[0].Window.Microseconds(), inForce)
		}
		for _, e := range events[c.key] {
			if inForce(e.at) {
				s.Mails++
				s.Units += e.units
			}
		}
		if s.UntilS > s.FromS {
			steps = append(steps, s)
		}
	}
	return steps
}

func writeWarmup(w io.Writer, steps []warmupStep) {
	if len(steps) == 0 {
		return
	}
	table := newTable(w)
	fmt.Fprintf(table, "warm-up of %s\tfrom\tuntil\tmails\tunits\tfullest window\n", steps[0].Tenant)
	for _, s := range steps {
		fullest := ""
		if s.Fullest > 0 {
			fullest = fmt.Sprintf("%14d", s.Fullest)
		}
		fmt.Fprintf(table, "%s\t%5.2f s\t%5.2f s\t%5d\t%5d\t%s\n", s.Limit, s.FromS, s.UntilS, s.Mails, s.Units, fullest)
	}
	table.Flush()
	fmt.Fprintln(w)
}
