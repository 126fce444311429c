package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// keyPage is the page of one scope key.
type keyPage struct {
	instantNow
	Paused, Next time.Time
	Mode         throttle.Mode
	Weak         bool
	SetFor       string
	Waiting      int64 // flows
	Rows         []keyRow
	History      chart
	Blocked      blocked
	WaitsFor     []flowRow
	Changes      []changeRow
}

// blocked are the flows that wait under a scope key.
type blocked struct {
	Jobs int64
	Rows []flowRow
	More int
}

// keyPageOf is nil as long as nothing was read of the scope key.
func keyPageOf(b *board, key scopeKey) any {
	s := b.keys[key]
	if s == nil {
		return nil
	}
	p := &keyPage{
		instantNow: instantNow{s.usage.Now}, Next: s.usage.Next, Mode: s.usage.Mode, Weak: s.usage.Mode != throttle.Enforce,
		SetFor: s.usage.SetFor, Waiting: s.usage.Waiting, Rows: []keyRow{b.keyRow(key)}, History: chartOf(s.history),
	}
	if s.usage.Paused.After(s.usage.Now) {
		p.Paused = s.usage.Paused
	}
	here := b.line.blocked(key)
	p.Blocked = blocked{here.Jobs, b.flowRows(here), here.InAll - len(here.Rows)}
	if key.Scope == b.process.fair() {
		p.WaitsFor = b.flowRows(b.line.keysOf(key.Key))
	}
	for _, c := range b.process.changes {
		if c.Scope == key.Scope && c.Key == key.Key && len(p.Changes) < mostFlows {
			p.Changes = append(p.Changes, b.changeRow(c))
		}
	}
	return p
}

// try says what limits would have kept back; it changes nothing.
func (h *Handler) try(ctx context.Context, f *frame) int {
	limits, err := throttle.ParseLimits(f.Limits)
	if err != nil {
		f.Refused = problem(err)
		return http.StatusBadRequest
	}
	b := h.hub.board(ctx, nil)
	if b.throttle == nil {
		return http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tried, err := view.Try(ctx, b.throttle, f.Of.Scope, []string{f.Of.Key}, limits)
	if err != nil {
		f.Refused = problem(err)
		return http.StatusServiceUnavailable
	}
	f.Tried = tried
	return http.StatusOK
}
