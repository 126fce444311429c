package dashboard

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// turn is had by one at a time.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn; false if ctx ended before. Whoever has it leaves it.
func (t turn) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turn) leave() { <-t }

// clients counts what is under way, by client. The zero value counts nothing yet.
type clients struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// enter counts one more of a client; false if it has so many already. The returned function
// takes it back.
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

// clientOf returns the client that a request is counted for: its name by Options.Who, if that is
// set, else the host that it came from. A name that nobody has verified would be as good as none.
func (h *Handler) clientOf(r *http.Request) string {
	if h.options.named {
		return h.options.Who(r)
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// tooMany answers a request that is one too many.
func tooMany(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, why, http.StatusTooManyRequests)
}
