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
// before, from a Redis that is 15 ms away, all other browsers get the overview. It is asked for whenever one of those
// pages gets an event.
func TestOverviewBesideManyNewKeys(t *testing.T) {
	t.Parallel()
	const browsers = 200
	proxy := redistest.NewProxy(t, newWorld(t).server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	t.Cleanup(func() { _ = client.Close() })
	h, err := dashboard.New("smtp", client, nil)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Delay(15 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan int)
	var streams sync.WaitGroup
	for i := range browsers {
		streams.Go(func() {
			page := fmt.Sprintf("/events?page=key&scope=tenant&key=new-%d", i)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i/40)
			h.ServeHTTP(&stream{httptest.NewRecorder(), events}, r)
		})
	}
	const asked = 2 * browsers // the second events have what is read anew, of all keys
	served := 0
	for range asked {
		if status := <-events; status != http.StatusOK {
			t.Errorf("an event has status %d", status)
		}
		if got := get(t.Context(), h, "/"); got.status == http.StatusOK {
			served++
		} else {
			t.Logf("the overview: status %d\n%s", got.status, got.text)
		}
	}
	cancel()
	go func() {
		streams.Wait()
		close(events)
	}()
	for range events { // those on their way
	}
	// What is read has five seconds, which a slow machine may take now and then.
	if served < longtest.Of(asked/2, asked) {
		t.Errorf("the overview was served %d of %d times", served, asked)
	}
}

// stream sends its status to events whenever something is written to it.
type stream struct {
	*httptest.ResponseRecorder
	events chan<- int
}

func (s *stream) Write(content []byte) (int, error) {
	n, err := s.ResponseRecorder.Write(content)
	s.events <- s.Code
	return n, err
}
