package dashboard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// How much one reading reads, at most.
const (
	mostRows      = 12              // scope keys that the overview shows
	mostOpen      = 8               // scope keys that are open in browsers, in turns
	mostHistories = 2               // histories of open scope keys that are read
	processed     = 5 * time.Second // how long the seldom changing state is reused
)

// reader reads Redis. It keeps no state: each reading is given the board of the last one.
type reader struct {
	name   string
	client redis.UniversalClient
	stats  func() worker.Stats
}

// read reads what is due. If Redis does not answer, read returns the last board with the error.
func (r *reader) read(ctx context.Context, l order) *board {
	b := &board{keys: make(map[scopeKey]*standing), drawn: new(drawn)}
	if l.before != nil {
		b = l.before.copy()
	}
	b.err = nil
	var err error
	if l.more != nil {
		if err = b.readKeys(ctx, []scopeKey{*l.more}); err == nil {
			err = b.readHistories(ctx, []scopeKey{*l.more})
		}
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

func (r *reader) readAll(ctx context.Context, b *board, l order) error {
	if b.throttle == nil || l.anew || b.taken.Sub(b.process.read) >= processed {
		if err := r.readProcesses(ctx, b, l.anew); err != nil {
			return err
		}
	}
	if l.anew || b.line.due(b.taken) {
		if err := b.readLine(ctx); err != nil {
			return err
		}
	}
	if err := b.readOpen(ctx, l.open); err != nil {
		return err
	}
	b.count(ctx, r, l.before)
	return nil
}

// readOpen reads the rows of the overview and the open scope keys, the least recently read first.
func (b *board) readOpen(ctx context.Context, open []scopeKey) error {
	before := b.keys
	b.keys = make(map[scopeKey]*standing)
	slices.SortStableFunc(open, func(x, y scopeKey) int { return lastRead(before[x]).Compare(lastRead(before[y])) })
	b.rows = b.choose(before)
	now := slices.Clone(open[:min(len(open), mostOpen)])
	for _, key := range b.rows {
		if !slices.Contains(now, key) {
			now = append(now, key)
		}
	}
	for _, key := range slices.Concat(now, open) {
		if before[key] != nil {
			b.keys[key] = before[key]
		}
	}
	if err := b.readKeys(ctx, now); err != nil {
		return err
	}
	return b.readHistories(ctx, open)
}

// readProcesses reads the seldom changing state, and attaches anew if the configuration has
// changed. After a change on a page (anew), it reads the settings at once.
func (r *reader) readProcesses(ctx context.Context, b *board, anew bool) error {
	p, th := processes{read: b.taken}, b.throttle
	var err error
	if th == nil {
		if th, err = inspect.Attach(ctx, r.name, r.client); err != nil {
			return err
		}
	}
	if p.all, err = th.Processes(ctx); err != nil {
		return err
	}
	if b.throttle != nil && !p.sameAs(b.process) {
		if th, err = inspect.Attach(ctx, r.name, r.client); err != nil {
			return err
		}
	}
	if p.changes, err = th.Changes(ctx); err != nil {
		return err
	}
	if p.noted, err = th.Backlogs(ctx); err != nil {
		return err
	}
	sets := b.process.sets
	if anew {
		sets = sets.Anew()
	}
	p.sets = readSets(ctx, th, sets, p.changes)
	p.load, p.sample = view.LoadSince(ctx, th, b.process.sample, view.ShortLoad)
	b.throttle, b.process = th, p
	return nil
}

// readSets reads the settings. If Redis has so many keys that this takes too long, readSets returns
// the earlier settings, which may be unknown: the rest of the pages should not wait for the settings.
func readSets(ctx context.Context, th *inspect.Inspector, before view.Sets, changes []inspect.Change) view.Sets {
	ctx, cancel := context.WithTimeout(ctx, settingsPatience)
	defer cancel()
	began := time.Now()
	sets, err := before.Read(ctx, th, changes)
	if err != nil {
		return before.Later(time.Since(began))
	}
	return sets
}

// readKeys reads the state of scope keys.
func (b *board) readKeys(ctx context.Context, keys []scopeKey) error {
	read := make([]*standing, len(keys))
	err := together(len(keys), func(i int) error {
		var err error
		read[i], err = b.readKey(ctx, keys[i])
		return err
	})
	if err != nil {
		return err
	}
	for i, key := range keys {
		b.keys[key] = read[i]
		if now := read[i].usage.Now; now.After(b.now) {
			b.now = now
		}
	}
	return nil
}

// readKey reads the state of a scope key. It does not change the board.
func (b *board) readKey(ctx context.Context, key scopeKey) (*standing, error) {
	var next standing
	if before := b.keys[key]; before != nil {
		next = *before
	}
	next.err = nil
	u, err := b.throttle.Usage(ctx, key.Scope, key.Key)
	var invalid *throttle.ArgumentError
	switch {
	case errors.Is(err, throttle.ErrState), errors.As(err, &invalid):
		next.err, next.usage = err, inspect.Usage{Scope: key.Scope, Key: key.Key, Now: b.now}
	case err != nil:
		return nil, err
	default:
		next.usage, next.full = u, with(next.full, fullest(u))
	}
	return &next, nil
}

// readHistories reads the histories of some open scope keys, the least recently read first.
func (b *board) readHistories(ctx context.Context, open []scopeKey) error {
	due := slices.DeleteFunc(slices.Clone(open), func(key scopeKey) bool {
		s := b.keys[key]
		return s == nil || s.err != nil || !s.history.due(s.usage, b.taken)
	})
	slices.SortStableFunc(due, func(x, y scopeKey) int { return b.keys[x].history.read.Compare(b.keys[y].history.read) })
	for _, key := range due[:min(len(due), mostHistories)] {
		next := *b.keys[key]
		var err error
		if next.history, err = b.readHistory(ctx, next.usage); err != nil {
			return err
		}
		b.keys[key] = &next
	}
	return nil
}

// choose returns the scope keys that the overview shows: Global, the paused keys, the keys under which
// the most jobs wait, the keys of the flows that have waited longest, and the keys in use that the last
// overview showed.
func (b *board) choose(before map[scopeKey]*standing) []scopeKey {
	var rows []scopeKey
	add := func(key scopeKey) {
		hashed := strings.HasPrefix(key.Key, "~") // Redis has only the hash of a very long key
		if len(rows) < mostRows && !hashed && b.refuses(key) == "" && !slices.Contains(rows, key) {
			rows = append(rows, key)
		}
	}
	add(scopeKey{Scope: throttle.Global})
	for _, set := range b.process.sets.At(b.now) {
		if set.What == "pause" && len(rows) < mostRows/2 {
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

// order compares scope keys by their scopes' position in the configuration, then by key.
func (b *board) order(x, y scopeKey) int {
	of := func(k scopeKey) int {
		return slices.IndexFunc(b.process.scopes(), func(s throttle.Scope) bool { return s.Name == k.Scope })
	}
	if d := of(x) - of(y); d != 0 {
		return d
	}
	return x.compare(y)
}

// lastRead returns when a scope key was last read; zero if never.
func lastRead(s *standing) time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.usage.Now
}

// inUse reports whether a scope key has anything to show.
func inUse(u inspect.Usage) bool {
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

// fullest returns how full the fullest limit is, 0 to 1 or more.
func fullest(u inspect.Usage) float64 {
	most := 0.0
	for _, row := range view.UsesOf(u) {
		most = max(most, row.Ratio)
	}
	return most
}
