package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	// idle: after a reading, the line is left alone for this many times the reading's duration.
	// So readings take less than a third of a percent of the time, however much waits.
	idle = 300
	// mostFlows is how many flows a page shows.
	mostFlows = 20
)

// due reports whether the line is old enough to be read again.
func (w waiting) due(now time.Time) bool {
	return w.read.IsZero() || now.Sub(w.read) >= idle*w.took
}

// readLine reads the waiting jobs. If more jobs wait than are read, it reads only the scope keys
// under which they wait.
func (b *board) readLine(ctx context.Context) error {
	began := time.Now()
	page, err := b.throttle.Lines(ctx, "")
	if err != nil {
		return err
	}
	w := waiting{read: b.taken, at: page.Now, under: make(map[scopeKey]view.Row)}
	b.now = page.Now
	enough, cancel := context.WithTimeout(ctx, linePatience)
	defer cancel()
	lanes, err := b.throttle.Lanes(enough)
	switch {
	case err == nil:
		w.put(lanes)
	case enough.Err() != nil && ctx.Err() == nil: // the reading takes too long
		w.putLines(page.Lines)
	case errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrState) || ctx.Err() != nil:
		return err
	default: // more jobs wait than the call reads
		w.putLines(page.Lines)
	}
	w.most = w.most[:min(len(w.most), mostRows)]
	w.took = time.Since(began)
	b.line = w
	return nil
}

// putLines replaces the lanes with the scope keys under which jobs wait.
func (w *waiting) putLines(lines []inspect.Line) {
	w.many = true
	for _, l := range lines {
		key := scopeKey{l.Scope, l.Key}
		w.under[key] = view.Row{Scope: l.Scope, Key: l.Key, Flows: int(l.Flows)}
		w.most = append(w.most, key)
	}
	slices.SortStableFunc(w.most, func(x, y scopeKey) int { return cmp.Compare(w.under[y].Flows, w.under[x].Flows) })
}

// put sorts lanes by scope key and by flow.
func (w *waiting) put(lanes []inspect.Lane) {
	w.lanes, w.byKey, w.byFlow = lanes, make(map[scopeKey][]int), make(map[string][]int)
	for i, l := range lanes {
		key := scopeKey{l.Scope, l.Key}
		w.byKey[key] = append(w.byKey[key], i)
		w.byFlow[l.Flow] = append(w.byFlow[l.Flow], i)
	}
	w.flows = view.Rows(lanes, view.ByFlow, view.Filter{}, mostFlows)
	under := view.Rows(lanes, view.ByKey, view.Filter{}, len(lanes)).Rows
	for _, row := range under {
		w.under[scopeKey{row.Scope, row.Key}] = row
	}
	slices.SortStableFunc(under, func(x, y view.Row) int { return cmp.Compare(y.Jobs, x.Jobs) })
	for _, row := range under {
		w.most = append(w.most, scopeKey{row.Scope, row.Key})
	}
}

// blocked returns the flows that wait under a scope key.
func (w waiting) blocked(key scopeKey) view.Waiting {
	return view.Rows(w.some(w.byKey[key]), view.ByFlow, view.Filter{}, mostFlows)
}

// keysOf returns the scope keys that the jobs of a flow wait for.
func (w waiting) keysOf(flow string) view.Waiting {
	return view.Rows(w.some(w.byFlow[flow]), view.ByKey, view.Filter{}, mostFlows)
}

// unitsOf returns the units of a scope that the jobs of a flow take, estimated from the first jobs
// of its lanes.
func (w waiting) unitsOf(flow, scope string) (units int64) {
	for _, l := range w.some(w.byFlow[flow]) {
		units += l.Jobs * l.Costs[scope]
	}
	return units
}

// some returns the lanes at these indexes.
func (w waiting) some(indexes []int) []inspect.Lane {
	lanes := make([]inspect.Lane, len(indexes))
	for i, at := range indexes {
		lanes[i] = w.lanes[at]
	}
	return lanes
}
