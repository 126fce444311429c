package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// TestOverviewBesideManyNewKeys: while 200 browsers open the pages of keys that were not read
// before, from a Redis that is 15 ms away, all other browsers get the overview.
func TestOverviewBesideManyNewKeys(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, newWorld(t).server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	t.Cleanup(func() { _ = client.Close() })
	h, err := dashboard.New("smtp", client, nil)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Delay(15 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	for i := range 200 {
		streams.Go(func() {
			page := fmt.Sprintf("/events?page=key&scope=tenant&key=new-%d", i)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i/40)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK {
				t.Errorf("stream %d: status %d: %s", i, w.Code, w.Body)
			}
		})
	}
	const asked = 20
	served := 0
	for range asked {
		if got := get(t.Context(), h, "/"); got.status == http.StatusOK {
			served++
		} else {
			t.Logf("the overview: status %d\n%s", got.status, got.text)
		}
		time.Sleep(100 * time.Millisecond)
	}
	cancel()
	streams.Wait()
	// What is read has five seconds, which a slow machine may take now and then.
	if served < longtest.Of(asked/2, asked) {
		t.Errorf("the overview was served %d of %d times", served, asked)
	}
}
