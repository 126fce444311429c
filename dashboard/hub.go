package dashboard

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// every is how long what was read of Redis is shown: it is read once in this time at most.
const every = time.Second

// patience is how long one look may take.
const patience = 5 * time.Second

// scopeKey names a scope key; the key of Global is empty.
type scopeKey struct{ Scope, Key string }

// hub lets many who look share what was read. Whoever comes first after it got old reads
// anew, and the others wait for that: nobody reads while nobody looks.
type hub struct {
	name string // of the throttle
	read func(ctx context.Context, l look) *board

	mu      sync.Mutex // held while Redis is read
	current *board

	asking sync.Mutex
	open   map[scopeKey]int // by how many browsers each is kept up to date
}

// look is what is asked of a reader.
type look struct {
	before *board     // what was read before; nil at first
	open   []scopeKey // scope keys that pages show
	more   *scopeKey  // not nil: nothing but this one beside what was read before
	anew   bool       // something was changed: nothing is to be taken from before
}

func newHub(name string, read func(ctx context.Context, l look) *board) *hub {
	return &hub{name: name, read: read, open: make(map[scopeKey]int)}
}

// board returns what was read within the last second, with how one scope key stands if it
// is not nil. That the one who asks goes does not end a look: others wait for it.
func (h *hub) board(ctx context.Context, key *scopeKey) *board {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	b := h.current
	switch {
	case b == nil || b.changed || time.Since(b.done) >= every:
		h.current = h.read(ctx, look{before: b, open: h.opened(key), anew: b != nil && b.changed})
		h.current.done = time.Now()
	case key != nil && b.err == nil && b.lacks(*key):
		h.current = h.read(ctx, look{before: b, more: key})
	}
	return h.current
}

// changed has the next who looks read all anew.
func (h *hub) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		again := h.current.copy()
		again.changed = true
		h.current = again
	}
}

// watch keeps a scope key among those that are read, until the returned function is called.
func (h *hub) watch(key *scopeKey) (end func()) {
	if key == nil {
		return func() {}
	}
	h.asking.Lock()
	defer h.asking.Unlock()
	h.open[*key]++
	return func() {
		h.asking.Lock()
		defer h.asking.Unlock()
		if h.open[*key]--; h.open[*key] == 0 {
			delete(h.open, *key)
		}
	}
}

// opened are the scope keys that are watched, and one that is asked for.
func (h *hub) opened(key *scopeKey) []scopeKey {
	h.asking.Lock()
	defer h.asking.Unlock()
	keys := slices.SortedFunc(maps.Keys(h.open), scopeKey.compare)
	if key != nil && !slices.Contains(keys, *key) {
		keys = append([]scopeKey{*key}, keys...)
	}
	return keys
}
