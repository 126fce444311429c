package main

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"sync"
)

// door lets one browser in: the one that comes first with the ticket, which stands in the
// address that was printed. Other users of the machine reach a port of loopback as well.
type door struct {
	next   http.Handler
	cookie string // the name: a browser sends cookies to all ports of a host

	mu     sync.Mutex
	ticket string // empty once it was used
	pass   string // of the browser that came with it
}

func newDoor(next http.Handler, addr net.Addr) *door {
	_, port, _ := net.SplitHostPort(addr.String())
	return &door{next: next, cookie: "asynq-throttle-" + port, ticket: rand.Text(), pass: rand.Text()}
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cookie, err := r.Cookie(d.cookie)
	switch {
	case err == nil && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(d.pass)) == 1:
		d.next.ServeHTTP(w, r)
	case r.Method == http.MethodGet && d.takes(r.URL.Query().Get("ticket")):
		//nolint:gosec // loopback has no TLS
		http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.pass, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, "/", http.StatusSeeOther)
	default:
		http.Error(w,
			"Open the address that asynq-throttle serve printed. It lets one browser in, once; for another one "+
				"start it again.", http.StatusForbidden)
	}
}

// takes takes the ticket, once.
func (d *door) takes(ticket string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ticket == "" || subtle.ConstantTimeCompare([]byte(ticket), []byte(d.ticket)) != 1 {
		return false
	}
	d.ticket = ""
	return true
}
