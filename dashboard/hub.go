package dashboard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// every is how long a board is shown: the open scope keys are read at most once in this time.
const every = time.Second

// patience is how long one reading may take.
const patience = 5 * time.Second

// Parts of a reading that take longer than these give up their time to the others.
const (
	linePatience     = patience / 2
	settingsPatience = patience / 3
)

// scopeKey names a scope key; the key of Global is empty.
type scopeKey struct{ Scope, Key string }

// hub shares one board among all requests. The first request after the board is out of date reads a
// new one, and the others wait for it. Without requests, nothing is read.
type hub struct {
	name string // of the throttle
	read func(ctx context.Context, l order) *board

	reading sync.Mutex // held while the open scope keys are read
	adding  turn       // taken while the scope key of a loaded page is read

	mu      sync.Mutex
	current *board
	anew    bool             // a setting was changed since the last reading began
	open    map[scopeKey]int // how many browsers have each scope key open
}

// order says what one reading reads.
type order struct {
	before *board     // the board before; nil at first
	open   []scopeKey // scope keys that pages show
	more   *scopeKey  // not nil: only this scope key is read, and added to the board before
	anew   bool       // a setting was changed: nothing of the board before is reused
}

func newHub(name string, read func(ctx context.Context, l order) *board) *hub {
	return &hub{name: name, read: read, adding: newTurn(), open: make(map[scopeKey]int)}
}

// board returns a board that is at most a second old, with the state of key if key is not nil. A
// reading goes on when its caller has gone, since other requests wait for it.
func (h *hub) board(ctx context.Context, key *scopeKey) *board {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	b := h.all(ctx)
	if key == nil || b.err != nil || !b.lacks(*key) {
		return b
	}
	return h.with(ctx, *key)
}

// all returns the board of all open scope keys, and reads it anew if it is out of date.
func (h *hub) all(ctx context.Context) *board {
	h.reading.Lock()
	defer h.reading.Unlock()
	l, is := h.due()
	if !is {
		return l.before
	}
	b := h.read(ctx, l)
	b.done = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, s := range h.added(l.before) {
		if b.keys[key] == nil {
			b.keys[key] = s
		}
	}
	h.anew = h.anew || l.anew && b.err != nil
	h.current = b
	return b
}

// due returns the reading that is due. If no reading is due, the order has the current board.
func (h *hub) due() (order, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.current
	if b != nil && !h.anew && time.Since(b.done) < every {
		return order{before: b}, false
	}
	l := order{before: b, open: slices.SortedFunc(maps.Keys(h.open), scopeKey.compare), anew: b != nil && h.anew}
	h.anew = false
	return l, true
}

// added returns the scope keys that were read one by one since a reading began.
func (h *hub) added(before *board) map[scopeKey]*standing {
	added := make(map[scopeKey]*standing)
	if h.current == nil || before == nil || h.current == before {
		return added
	}
	for key, s := range h.current.keys {
		if before.keys[key] != s {
			added[key] = s
		}
	}
	return added
}

// errBusy is the error on a page whose scope key was not read.
var errBusy = errors.New("too much is asked for at the same time: load the page again in some seconds")

// with reads one scope key and adds it to the board. Requests for the other pages do not wait for
// it.
func (h *hub) with(ctx context.Context, key scopeKey) *board {
	if !h.adding.take(ctx) {
		b := h.latest().copy()
		b.err = errBusy
		return b
	}
	defer h.adding.leave()
	b := h.latest()
	if !b.lacks(key) {
		return b
	}
	b = h.read(ctx, order{before: b, more: &key})
	if b.err != nil {
		return b
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.current.copy()
	next.keys[key] = b.keys[key]
	h.current = next
	return next
}

func (h *hub) latest() *board {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// changed makes the next request read everything anew, starting with this scope key.
func (h *hub) changed(key scopeKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.anew = true
	if h.current != nil {
		again := h.current.copy()
		delete(again.keys, key)
		h.current = again
	}
}

// watch keeps a scope key among the open ones until the returned function is called.
func (h *hub) watch(key *scopeKey) (end func()) {
	if key == nil {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[*key]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.open[*key]--; h.open[*key] == 0 {
			delete(h.open, *key)
		}
	}
}
