package main

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"sync"
)

// door admits one browser: the first that presents the ticket in the printed address. Other users
// of the machine can reach a port of loopback too.
type door struct {
	next   http.Handler
	cookie string // the name: a browser sends cookies to all ports of a host

	mu     sync.Mutex
	ticket string // empty after its use
	pass   string // the cookie's value, for the browser that presented the ticket
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

// takes reports whether this is the ticket, and uses it up.
func (d *door) takes(ticket string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ticket == "" || subtle.ConstantTimeCompare([]byte(ticket), []byte(d.ticket)) != 1 {
		return false
	}
	d.ticket = ""
	return true
}
