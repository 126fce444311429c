package inspect

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/lanes"
	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// mostNames is how many scope keys one call reads.
const mostNames = 100

// reader reads the waiting lanes and the state of their scope keys.
type reader struct {
	*Inspector
	*lanes.Reader
	now      time.Time
	accounts map[string]account // by the name of the scope key
}

// readLine reads the waiting lanes, their jobs, and the state of their scope keys and of the scope keys of some jobs.
func (t *Inspector) readLine(ctx context.Context, orders []*order) (*reader, error) {
	r, err := t.readLanes(ctx)
	if err == nil {
		err = r.readJobs(ctx, orders)
	}
	return r, err
}

// readLanes reads the waiting lanes.
func (t *Inspector) readLanes(ctx context.Context) (*reader, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	read, err := lanes.Read(ctx, t.in.Lanes())
	return &reader{Inspector: t, Reader: read, accounts: make(map[string]account)}, err
}

// readJobs reads the jobs of the lanes, and the state of their scope keys and of the scope keys of some jobs.
// It reads scope keys last, so that a job that is booked meanwhile counts twice rather than not at all.
func (r *reader) readJobs(ctx context.Context, orders []*order) error {
	if err := r.ReadJobs(ctx); err != nil {
		return err
	}
	return r.readAccounts(ctx, orders)
}

// readAccounts reads the state of the scope keys of the waiting lanes and of some jobs. The time of the last
// answer becomes the reader's now.
func (r *reader) readAccounts(ctx context.Context, orders []*order) error {
	var names []string
	for _, l := range r.Reader.Lanes {
		if _, _, of, _ := wire.LaneParts(l.Lane); of != "" {
			names = append(names, strings.Split(of, ",")...)
		}
	}
	for _, o := range orders {
		for i := range o.Charges {
			names = append(names, o.Charges[i].Name)
		}
	}
	slices.Sort(names)
	for some := range slices.Chunk(slices.Compact(names), mostNames) {
		accounts, err := r.usage(ctx, wire.Usage{Entries: true, Names: some})
		if err != nil {
			return err
		}
		for i, name := range some {
			r.accounts[name] = accounts[i]
			r.now = accounts[i].Now
			r.Snapshot.Keys = append(r.Snapshot.Keys, r.snapshot(&accounts[i], name))
		}
	}
	if r.now.IsZero() {
		p, err := r.Page(ctx, wire.LinesClaims, 0) // only its time is used
		if err != nil {
			return err
		}
		r.now = wire.Instant(p.Now)
	}
	return r.readSettings(ctx)
}

// readSettings reads the limits that some scope keys have of their own, and what is set for scopes. A client that
// takes no plain commands cannot read them: what is in force then counts as set without an end.
func (r *reader) readSettings(ctx context.Context) error {
	if _, plain := r.in.Client().(redis.Cmdable); !plain {
		r.takeInForce()
		return nil
	}
	var own []string
	for _, k := range r.Snapshot.Keys {
		if r.accounts[k.Name].SetFor == "key" {
			own = append(own, k.Name)
		}
	}
	for some := range slices.Chunk(own, mostNames) {
		headers, err := r.headers(ctx, some)
		if err != nil {
			return err
		}
		for i, name := range some {
			r.note(wire.ReadKeySettings(name, headers[i]))
		}
	}
	control, err := r.value(ctx, wire.ControlKey(r.name))
	if err != nil {
		return err
	}
	r.note(wire.ReadControl(control))
	return nil
}

// takeInForce takes the limits and the modes in force as set without an end.
func (r *reader) takeInForce() {
	for _, k := range r.Snapshot.Keys {
		a := r.accounts[k.Name]
		r.Snapshot.Set = append(r.Snapshot.Set,
			line.Setting{Name: k.Name, Limits: append([]line.Limit{}, r.asRun(a.Scope, a.counted)...), Ends: line.Never},
			line.Setting{Name: a.Scope, Mode: line.Mode(wire.Modes[a.Mode]), Ends: line.Never})
	}
}

// note adds the limits and the modes among settings to the snapshot.
func (r *reader) note(all []wire.Setting) {
	for _, s := range all {
		set := line.Setting{Name: s.Name, Ends: line.Never}
		if !s.Until.IsZero() {
			set.Ends = s.Until.UnixMicro()
		}
		switch {
		case s.What == wire.SetMode && s.Value != "":
			set.Mode = line.Mode(s.Value[0])
		case s.What == wire.SetLimits:
			scope, _, _ := strings.Cut(s.Name, ":")
			set.Limits = r.asRun(scope, wire.SettingLimits(s.Value))
		default: // the pauses are in the accounts
			continue
		}
		r.Snapshot.Set = append(r.Snapshot.Set, set)
	}
}

// asRun returns limits of a scope with other leases: a running job is taken to end when it has run as long as other
// jobs did or, if that is not known, as soon as another job could start.
func (r *reader) asRun(scope string, limits []line.Limit) []line.Limit {
	limits = slices.Clone(limits)
	for i, l := range limits {
		if l.Kind != line.Running {
			continue
		}
		if lasts, known := r.in.Counts(scope, r.in.Entered(scope, l)); known {
			limits[i].Span = asRun(lasts)
		} else {
			limits[i].Units = throttle.Unlimited
		}
	}
	return limits
}

func asRun(lasts time.Duration) line.Span { return line.Lease(max(1, lasts.Microseconds())) }

// snapshot returns the state of a scope key. Its running jobs are counted under the lease that asRun gives their limit.
func (r *reader) snapshot(a *account, name string) line.KeySnapshot {
	k := line.KeySnapshot{Name: name, Part: int64(math.Round(a.Served * wire.Thousandths)), Ledgers: a.ledgers}
	if !a.Paused.IsZero() {
		k.Paused = a.Paused.UnixMicro()
	}
	if lasts, known := r.in.Counts(a.Scope, throttle.Running(1)); known {
		for i := range k.Ledgers {
			if k.Ledgers[i].Kind == line.Running {
				k.Ledgers[i].Span = asRun(lasts)
			}
		}
		k.Ledgers = slices.CompactFunc(k.Ledgers, func(a, b line.LedgerSnapshot) bool { return a.Span == b.Span })
	}
	return k
}
