package dashboard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// How much one look reads.
const (
	mostRows  = 12              // scope keys that the overview shows
	mostOpen  = 8               // scope keys that are open in browsers, in turns
	processed = 5 * time.Second // how long what seldom changes is taken for right
)

// reader reads Redis. It keeps nothing: what was read before is given to it.
type reader struct {
	name   string
	client redis.UniversalClient
	stats  func() worker.Stats
}

// look reads what is due. Where Redis does not answer, it is what was read before, with why.
func (r *reader) look(ctx context.Context, l look) *board {
	b := &board{keys: make(map[scopeKey]*standing), drawn: new(drawn)}
	if l.before != nil {
		b = l.before.copy()
	}
	b.err = nil
	var err error
	if l.more != nil {
		err = b.readKey(ctx, *l.more, true)
	} else {
		b.taken = time.Now()
		err = r.readAll(ctx, b, l)
	}
	if err != nil {
		failed := &board{keys: make(map[scopeKey]*standing), drawn: new(drawn)}
		if l.before != nil {
			failed = l.before.copy()
		}
		failed.taken, failed.err = b.taken, err
		return failed
	}
	return b
}

func (r *reader) readAll(ctx context.Context, b *board, l look) error {
	if b.throttle == nil || l.anew || b.taken.Sub(b.process.read) >= processed {
		if err := r.readProcesses(ctx, b); err != nil {
			return err
		}
	}
	if l.anew || b.line.due(b.taken) {
		if err := b.readLine(ctx); err != nil {
			return err
		}
	}
	before := b.keys
	b.keys = make(map[scopeKey]*standing)
	open := slices.Clone(l.open)
	slices.SortStableFunc(open, func(x, y scopeKey) int { return lastRead(before[x]).Compare(lastRead(before[y])) })
	for i, key := range open {
		b.keys[key] = before[key]
		if i < mostOpen || before[key] == nil {
			if err := b.readKey(ctx, key, true); err != nil {
				return err
			}
		}
	}
	b.rows = b.choose(before)
	for _, key := range b.rows {
		if b.keys[key] == nil || !slices.Contains(open, key) {
			b.keys[key] = before[key]
			if err := b.readKey(ctx, key, false); err != nil {
				return err
			}
		}
	}
	b.count(ctx, r, l.before)
	return nil
}

// readProcesses reads what seldom changes, and attaches anew where the configuration does.
func (r *reader) readProcesses(ctx context.Context, b *board) error {
	p, th := processes{read: b.taken}, b.throttle
	var err error
	if th == nil {
		if th, err = throttle.Attach(ctx, r.name, r.client); err != nil {
			return err
		}
	}
	if p.all, err = th.Processes(ctx); err != nil {
		return err
	}
	if b.throttle != nil && !p.sameAs(b.process) {
		if th, err = throttle.Attach(ctx, r.name, r.client); err != nil {
			return err
		}
	}
	if p.changes, err = th.Changes(ctx); err != nil {
		return err
	}
	p.load = view.LoadOf(ctx, th)
	b.throttle, b.process = th, p
	return nil
}

// readKey reads how a scope key stands, and what started under one that is open.
func (b *board) readKey(ctx context.Context, key scopeKey, open bool) error {
	var next standing
	if before := b.keys[key]; before != nil {
		next = *before
	}
	next.err = nil
	u, err := b.throttle.Usage(ctx, key.Scope, key.Key)
	var invalid *throttle.InvalidJobError
	switch {
	case errors.Is(err, throttle.ErrState), errors.As(err, &invalid):
		next.err, next.usage = err, throttle.Usage{Scope: key.Scope, Key: key.Key, Now: b.now}
		b.keys[key] = &next
		return nil
	case err != nil:
		return err
	}
	if !u.Now.Before(b.now) {
		b.now = u.Now
	}
	next.usage, next.full = u, with(next.full, fullest(u))
	if open && next.history.due(u, b.taken) {
		if next.history, err = b.readHistory(ctx, u); err != nil {
			return err
		}
	}
	b.keys[key] = &next
	return nil
}

// choose says which scope keys the overview shows: that of all, those that are paused,
// those under which most waits, those of the flows that wait longest, and those shown before
// that are in use.
func (b *board) choose(before map[scopeKey]*standing) []scopeKey {
	var rows []scopeKey
	add := func(key scopeKey) {
		if len(rows) < mostRows && b.refuses(key) == "" && !slices.Contains(rows, key) {
			rows = append(rows, key)
		}
	}
	add(scopeKey{Scope: throttle.Global})
	for i, set := range inForce(b.process.changes, b.now) {
		if set.What == "pause" && set.Key != "" && i < mostRows/2 {
			add(scopeKey{set.Scope, set.Key})
		}
	}
	for _, key := range b.line.most[:min(len(b.line.most), mostRows/2)] {
		add(key)
	}
	for _, row := range b.line.flows.Rows {
		add(scopeKey{b.process.fair(), row.Flow})
	}
	for _, key := range b.line.most {
		add(key)
	}
	for _, key := range b.rows {
		if s := before[key]; s != nil && inUse(s.usage) {
			add(key)
		}
	}
	slices.SortFunc(rows, b.order)
	return rows
}

// order is that of the configuration's scopes, and of their keys by name.
func (b *board) order(x, y scopeKey) int {
	of := func(k scopeKey) int {
		return slices.IndexFunc(b.process.scopes(), func(s throttle.Scope) bool { return s.Name == k.Scope })
	}
	if d := of(x) - of(y); d != 0 {
		return d
	}
	return x.compare(y)
}

// lastRead is when a scope key was read last; zero if it was not.
func lastRead(s *standing) time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.usage.Now
}

// inUse tells whether there is something to see of a scope key.
func inUse(u throttle.Usage) bool {
	if u.Waiting > 0 || view.ServedText(u.Served) != "" || u.Paused.After(u.Now) {
		return true
	}
	for _, l := range u.Limits {
		if l.Used > 0 || l.Booked > 0 {
			return true
		}
	}
	return false
}

// fullest is how full the fullest limit is, 0 to 1 or more.
func fullest(u throttle.Usage) float64 {
	most := 0.0
	for _, row := range view.UsesOf(u) {
		most = max(most, row.Ratio)
	}
	return most
}

// inForce are the changes that hold now: the last of each kind of each scope key, if it set
// something.
func inForce(changes []throttle.Change, now time.Time) []throttle.Change {
	type of struct{ what, scope, key string }
	seen := make(map[of]bool)
	var holding []throttle.Change
	for _, c := range changes {
		name := of{c.What, c.Scope, c.Key}
		if seen[name] {
			continue
		}
		seen[name] = true
		if c.After == "" {
			continue
		}
		if end, err := time.Parse(time.RFC3339, c.After); c.What == "pause" && err == nil && !end.After(now) {
			continue
		}
		holding = append(holding, c)
	}
	return holding
}
