package dashboard

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counting is a handler whose looks are counted, and read nothing.
func counting(t *testing.T) (*Handler, func() int) {
	t.Helper()
	var mu sync.Mutex
	looks := 0
	h := &Handler{closed: make(chan struct{}), origin: http.NewCrossOriginProtection()}
	h.close = sync.OnceFunc(func() { close(h.closed) })
	h.hub = newHub("smtp", func(context.Context, look) *board {
		mu.Lock()
		defer mu.Unlock()
		looks++
		return &board{taken: time.Now(), drawn: new(drawn)}
	})
	return h, func() int {
		mu.Lock()
		defer mu.Unlock()
		return looks
	}
}

// TestOneReadPerSecond: Redis is read once a second, however many look and whenever they
// came, and not at all while nobody does.
func TestOneReadPerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, looks := counting(t)
		time.Sleep(time.Minute)
		if n := looks(); n != 0 {
			t.Errorf("%d looks, and nobody was there", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		writers := make([]*httptest.ResponseRecorder, 100)
		for i := range writers {
			writers[i] = httptest.NewRecorder()
			all.Go(func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?page=", http.NoBody)
				h.ServeHTTP(writers[i], r)
			})
			time.Sleep(7 * time.Millisecond)
		}
		synctest.Wait()
		before := looks()
		const seconds = 30
		time.Sleep(seconds * time.Second)
		synctest.Wait()
		if n := looks() - before; n != seconds {
			t.Errorf("%d looks in %d seconds, with %d browsers", n, seconds, len(writers))
		}
		cancel()
		all.Wait()
		for i, w := range writers {
			if n := bytes.Count(w.Body.Bytes(), []byte("event: live\n")); n < seconds || n > seconds+2 {
				t.Errorf("browser %d was told %d times in some %d seconds", i, n, seconds)
			}
		}
		after := looks()
		time.Sleep(time.Minute)
		if n := looks(); n != after {
			t.Errorf("%d looks, and all have gone", n-after)
		}
		if n := h.lookers.Load(); n != 0 {
			t.Errorf("%d lookers are left", n)
		}
	})
}

// TestSlowRedis: those who wait for a look that takes long share it, and none looks again.
func TestSlowRedis(t *testing.T) {
	t.Parallel()
	h, looks := counting(t)
	asked, answered := make(chan struct{}), make(chan struct{})
	read := h.hub.read
	h.hub.read = func(ctx context.Context, l look) *board {
		b := read(ctx, l)
		b.taken = b.taken.Add(-time.Minute) // it began so long ago
		asked <- struct{}{}
		<-answered
		return b
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { h.hub.board(t.Context(), nil) })
	}
	<-asked
	close(answered)
	all.Wait()
	if n := looks(); n != 1 {
		t.Errorf("%d looks, want 1", n)
	}
}

// TestReloadingReadsNoMore: whole pages take what was read within the last second.
func TestReloadingReadsNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, looks := counting(t)
		for range 1000 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
			time.Sleep(10 * time.Millisecond)
		}
		if n := looks(); n != 10 {
			t.Errorf("%d looks in 10 seconds", n)
		}
	})
}

// TestClose ends what would keep a server from shutting down.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := counting(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page=changes", http.NoBody))
		}()
		time.Sleep(3 * time.Second)
		h.Close()
		h.Close()
		<-ended
	})
}

// TestTooManyLookers: a browser too many is told so, and the others stay.
func TestTooManyLookers(t *testing.T) {
	t.Parallel()
	h, _ := counting(t)
	h.lookers.Store(mostLookers)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page=", http.NoBody))
	if w.Code != http.StatusServiceUnavailable || h.lookers.Load() != mostLookers {
		t.Errorf("status %d, %d lookers", w.Code, h.lookers.Load())
	}
}

// TestLineIsLeftAlone: the longer it takes to read who waits, the more seldom that is done.
func TestLineIsLeftAlone(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: 300 * time.Millisecond, 200 * time.Millisecond: time.Minute} {
		w := waiting{read: now, took: took}
		if w.due(now.Add(want-time.Millisecond)) || !w.due(now.Add(want)) {
			t.Errorf("a line that took %s is not read again after %s", took, want)
		}
	}
	if !(waiting{}).due(now) {
		t.Error("a line that was never read is left alone")
	}
}
