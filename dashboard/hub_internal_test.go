package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// counting returns a handler whose readings of Redis are empty, and a function that returns their number.
func counting(t *testing.T) (*Handler, func() int) {
	t.Helper()
	var mu sync.Mutex
	looks := 0
	h := &Handler{options: Options{Who: asker}, closed: make(chan struct{}),
		origin: http.NewCrossOriginProtection(), searching: newTurn(), explained: newTurn()}
	h.close = sync.OnceFunc(func() { close(h.closed) })
	h.hub = newHub("smtp", func(context.Context, order) *board {
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

// TestOneReadPerSecond: Redis is read once a second, whatever the number of requests, and never
// without requests.
func TestOneReadPerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, looks := counting(t)
		time.Sleep(time.Minute)
		if n := looks(); n != 0 {
			t.Errorf("%d readings before the first request", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		writers := make([]*httptest.ResponseRecorder, 100)
		for i := range writers {
			writers[i] = httptest.NewRecorder()
			all.Go(func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?page=", http.NoBody)
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:7", i)
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
			t.Errorf("%d readings in %d seconds, with %d browsers", n, seconds, len(writers))
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
			t.Errorf("%d readings after all browsers have gone", n-after)
		}
		if n := h.streams.inAll(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// TestSlowRedis: requests that wait for a slow reading share it, and none starts another.
func TestSlowRedis(t *testing.T) {
	t.Parallel()
	h, looks := counting(t)
	asked, answered := make(chan struct{}), make(chan struct{})
	read := h.hub.read
	h.hub.read = func(ctx context.Context, l order) *board {
		b := read(ctx, l)
		b.taken = b.taken.Add(-time.Minute) // as if the reading began a minute ago
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
		t.Errorf("%d readings, want 1", n)
	}
}

// TestReloadingReadsNoMore: a page that is loaded again is served from the last reading for a second.
func TestReloadingReadsNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, looks := counting(t)
		for range 1000 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
			time.Sleep(10 * time.Millisecond)
		}
		if n := looks(); n != 10 {
			t.Errorf("%d readings in 10 seconds", n)
		}
	})
}

// TestClose: Close ends the streams that would keep a server from shutting down.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := counting(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page=changes", http.NoBody))
		}()
		time.Sleep(3 * time.Second)
		h.Close()
		h.Close()
		<-ended
	})
}

// TestTooManyPages: a client that opens too many pages, or one page more than all clients may have, is told so in
// a sentence. The pages of other clients are kept up to date, and the overview is still served.
func TestTooManyPages(t *testing.T) {
	t.Parallel()
	h, _ := counting(t)
	ask := func(page, client string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a stream ends at once
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
		r.RemoteAddr = client
		r.SetBasicAuth(fmt.Sprint("name-", rand.Int()), "") // nobody has verified it
		h.ServeHTTP(w, r)
		return w
	}
	for range mostOfClient {
		h.streams.enter("192.0.2.1", mostOfClient)
	}
	for page, want := range map[string]int{"192.0.2.1:1": http.StatusTooManyRequests, "192.0.2.2:1": http.StatusOK} {
		if w := ask("/events?page=", page); w.Code != want ||
			want != http.StatusOK && !strings.Contains(w.Body.String(), "40 pages are open from where you are") {
			t.Errorf("%s: status %d, want %d: %s", page, w.Code, want, w.Body)
		}
	}
	for i := range mostStreams - mostOfClient {
		h.streams.enter(fmt.Sprint("user-", i), 1)
	}
	if w := ask("/events?page=", "192.0.2.2:1"); w.Code != http.StatusTooManyRequests ||
		!strings.Contains(w.Body.String(), "200 pages are open") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if w := ask("/", "192.0.2.1:1"); w.Code != http.StatusOK {
		t.Errorf("the overview: status %d", w.Code)
	}
	if n := h.streams.inAll(); n != mostStreams {
		t.Errorf("%d pages are counted, want %d", n, mostStreams)
	}
	for range mostAtOnce {
		h.requests.enter("192.0.2.1", mostAtOnce)
	}
	for client, want := range map[string]int{"192.0.2.1:2": http.StatusTooManyRequests, "192.0.2.2:1": http.StatusOK} {
		if w := ask("/", client); w.Code != want {
			t.Errorf("%s: status %d, want %d", client, w.Code, want)
		}
	}
}

// TestNobodyWaitsForAKey: while the scope key of one request is read, the overview is served from
// the last reading.
func TestNobodyWaitsForAKey(t *testing.T) {
	t.Parallel()
	h, _ := counting(t)
	reading, read := make(chan struct{}), make(chan struct{})
	all := h.hub.read
	h.hub.read = func(ctx context.Context, l order) *board {
		if l.more == nil {
			return all(ctx, l)
		}
		close(reading)
		<-read
		b := l.before.copy()
		b.keys[*l.more] = new(standing)
		return b
	}
	key := scopeKey{"tenant", "acme"}
	done := make(chan *board)
	go func() { done <- h.hub.board(t.Context(), &key) }()
	<-reading
	if b := h.hub.board(t.Context(), nil); b.err != nil { // if it waited for the key, it would wait for ever
		t.Error(b.err)
	}
	close(read)
	if b := <-done; b.keys[key] == nil || h.hub.latest().keys[key] == nil {
		t.Error("what was read is lost")
	}
}

// TestJobDoesNotWaitForASearch: one request at a time searches all keys, and a second one gets an
// error that says so; the page of a job is served meanwhile.
func TestJobDoesNotWaitForASearch(t *testing.T) {
	t.Parallel()
	h, _ := counting(t)
	h.searching.take(t.Context())
	var f frame
	h.search(t.Context(), filled(), &f) // if it waited for the first search, it would wait for ever
	if !strings.Contains(f.Problem, "Somebody else looks") {
		t.Errorf("the second search says %q", f.Problem)
	}
	if !h.explained.take(t.Context()) {
		t.Error("a job waits for the search")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.hub.current = filled()
	h.hub.current.done = time.Now()
	if f, status := h.job(ctx, "mail-1"); status != http.StatusServiceUnavailable ||
		!strings.Contains(f.Problem, "too much is asked for") {
		t.Errorf("status %d, %q", status, f.Problem)
	}
}

// calls counts the scripts that a client calls.
type calls struct{ n atomic.Int64 }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "evalsha") {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}
func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestALookIsBounded: however many new scope keys are open, one reading covers some of them, and
// several readings cover all.
func TestALookIsBounded(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	th, err := throttle.New("smtp", client,
		[]throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(100)}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(2)}}}, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.New(th).Usage(t.Context(), throttle.Global, ""); err != nil {
		t.Fatal(err)
	}
	r := &reader{name: "smtp", client: client}
	var b *board
	for b == nil || b.err != nil { // the throttle publishes its configuration in a goroutine
		b = r.read(t.Context(), order{})
	}
	counted := new(calls)
	client.AddHook(counted)
	open := make([]scopeKey, mostOfClient)
	for i := range open {
		open[i] = scopeKey{"tenant", fmt.Sprint("t", i)}
	}
	looks, highest := 0, int64(0)
	for ; looks == 0 || slices.ContainsFunc(open,
		func(key scopeKey) bool { return b.keys[key] == nil || b.keys[key].history.bars == nil }); looks++ {
		before := counted.n.Load()
		b = r.read(t.Context(), order{before: b, open: slices.Clone(open)})
		if b.err != nil {
			t.Fatal(b.err)
		}
		highest = max(highest, counted.n.Load()-before)
		if n, most := counted.n.Load()-before, int64(mostRows+mostOpen+mostHistories*mostBars+5); n > most {
			t.Fatalf("a reading calls %d scripts, want %d at most", n, most)
		}
		if looks > 2*mostOfClient {
			t.Fatal("some scope keys are never read")
		}
	}
	if highest < mostOpen {
		t.Errorf("no reading calls more than %d scripts: are all counted?", highest)
	}
	t.Logf("%d readings for %d scope keys, %d scripts at most in one", looks, len(open), highest)
}

// TestLineIsLeftAlone: the longer a reading of the line takes, the more seldom it is read.
func TestLineIsLeftAlone(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: 300 * time.Millisecond,
		200 * time.Millisecond: time.Minute} {
		w := waiting{read: now, took: took}
		if w.due(now.Add(want-time.Millisecond)) || !w.due(now.Add(want)) {
			t.Errorf("a line whose reading took %s is not read again after exactly %s", took, want)
		}
	}
	if !(waiting{}).due(now) {
		t.Error("a line that was never read is left alone")
	}
}
