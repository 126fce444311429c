package dashboard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// every is how long what was read of Redis is shown: all that is open is read once in this
// time at most.
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

	looking sync.Mutex // held while all that is open is read
	adding  turn       // had while one scope key is read that a page is loaded of

	mu      sync.Mutex
	current *board
	anew    bool             // something was changed since the last look began
	open    map[scopeKey]int // by how many browsers each is kept up to date
}

// look is what is asked of a reader.
type look struct {
	before *board     // what was read before; nil at first
	open   []scopeKey // scope keys that pages show
	more   *scopeKey  // not nil: nothing but this one beside what was read before
	anew   bool       // something was changed: nothing is to be taken from before
}

func newHub(name string, read func(ctx context.Context, l look) *board) *hub {
	return &hub{name: name, read: read, adding: newTurn(), open: make(map[scopeKey]int)}
}

// board returns what was read within the last second, with how one scope key stands if it
// is not nil. That the one who asks goes does not end a look: others wait for it.
func (h *hub) board(ctx context.Context, key *scopeKey) *board {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	b := h.all(ctx)
	if key == nil || b.err != nil || !b.lacks(*key) {
		return b
	}
	return h.with(ctx, *key)
}

// all looks at all that is open, if the last look is old.
func (h *hub) all(ctx context.Context) *board {
	h.looking.Lock()
	defer h.looking.Unlock()
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

// due is the look that is due. If none is, it has what was read.
func (h *hub) due() (look, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.current
	if b != nil && !h.anew && time.Since(b.done) < every {
		return look{before: b}, false
	}
	l := look{before: b, open: slices.SortedFunc(maps.Keys(h.open), scopeKey.compare), anew: b != nil && h.anew}
	h.anew = false
	return l, true
}

// added are the scope keys that were read one by one since a look began.
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

// errBusy is what a page says that was not read.
var errBusy = errors.New("too much is asked for at the same time: load the page again in some seconds")

// with reads one scope key beside what was read. Whoever looks at all does not wait for it.
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
	b = h.read(ctx, look{before: b, more: &key})
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

// changed has the next who looks read all anew, this scope key first.
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

// watch keeps a scope key among those that are read, until the returned function is called.
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
