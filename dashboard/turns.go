package dashboard

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// turn is a lock with one owner at a time. A caller can stop waiting for it.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn; it returns false if ctx ended before. Its owner gives it back with
// leave.
func (t turn) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turn) leave() { <-t }

// clients counts the requests that are under way, by client. The zero value is ready for use.
type clients struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// enter counts one more request of a client; it returns false if the client has too many. The
// returned function ends the count.
func (c *clients) enter(client string, most int) (leave func(), is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[client] >= most {
		return nil, false
	}
	if c.of == nil {
		c.of = make(map[string]int)
	}
	c.of[client]++
	c.all++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		if c.of[client]--; c.of[client] == 0 {
			delete(c.of, client)
		}
	}, true
}

func (c *clients) inAll() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// clientOf returns the client for which a request is counted: its name by Options.Who, if set, else
// its host. A name that nobody has verified would bound nothing.
func (h *Handler) clientOf(r *http.Request) string {
	if h.options.named {
		return h.options.Who(r)
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// tooMany answers a request beyond the bound.
func tooMany(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, why, http.StatusTooManyRequests)
}
