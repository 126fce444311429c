package inspect

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

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

// readLine reads the waiting lanes, and the state of their scope keys and of the scope keys of some jobs.
// It reads scope keys last, so that a job that is booked meanwhile counts twice rather than not at all.
func (t *Inspector) readLine(ctx context.Context, orders []*order) (*reader, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	read, err := lanes.Read(ctx, t.in.Lanes())
	if err == nil {
		err = read.ReadJobs(ctx)
	}
	r := &reader{Inspector: t, Reader: read, accounts: make(map[string]account)}
	if err == nil {
		err = r.readAccounts(ctx, orders)
	}
	return r, err
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
			r.Snapshot.Keys = append(r.Snapshot.Keys, r.snapshotOf(&accounts[i], name))
		}
	}
	if r.now.IsZero() {
		p, err := r.Page(ctx, wire.LinesClaims, 0) // only its time is used
		if err != nil {
			return err
		}
		r.now = wire.Instant(p.Now)
	}
	return nil
}

// snapshotOf returns the state of a scope key. It assumes that a running job ends when it has run as long as
// other jobs did or, if that is not known, as soon as another job could start.
func (r *reader) snapshotOf(a *account, name string) line.KeySnapshot {
	k := a.snapshot(name)
	for i, l := range a.counted {
		if l.Kind != line.Running {
			continue
		}
		lasts := a.Limits[i].Counts
		if lasts == 0 {
			k.Limits[i].Units = throttle.Unlimited
			continue
		}
		lease, runs := k.Limits[i].Span, line.Lease(max(1, lasts.Microseconds()))
		k.Limits[i].Span = runs
		k.Ledgers = slices.Clone(k.Ledgers)
		for j := range k.Ledgers {
			if k.Ledgers[j].Span == lease {
				k.Ledgers[j].Span = runs
			}
		}
	}
	return k
}

// snapshot returns the state of a scope key, for package line.
func (a *account) snapshot(name string) line.KeySnapshot {
	k := line.KeySnapshot{Name: name, Part: int64(math.Round(a.Served * wire.Thousandths)),
		Mode: line.Mode(wire.Modes[a.Mode]), Ledgers: a.ledgers, Limits: slices.Clone(a.counted)}
	if !a.Paused.IsZero() {
		k.Paused = a.Paused.UnixMicro()
	}
	return k
}
