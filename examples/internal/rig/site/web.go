package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
)

// Site is one host of the bundled web.
type Site struct {
	Host    string
	Addr    netip.Addr
	Handler http.Handler
	// forbidden reports whether the host's robots.txt forbids a path. It states the rules a second time, so that the
	// check does not depend on what the crawler has read.
	forbidden func(path string) bool
}

// Web is some hosts on loopback, each with an access log.
type Web struct {
	sites     []Site
	listeners map[netip.Addr]net.Listener
	servers   []*http.Server
	Log       *AccessLog
}

// Start makes each address listen. If the machine has 127.0.0.1 alone, all hosts listen there, at different ports.
// Close the web in the end.
func Start(sites []Site, accesses *AccessLog) (*Web, error) {
	w := &Web{sites: sites, listeners: make(map[netip.Addr]net.Listener), Log: accesses}
	for _, one := range sites {
		if w.listeners[one.Addr] != nil {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(one.Addr.String(), "0"))
		if err != nil {
			listener, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("web: %w", err)
		}
		w.listeners[one.Addr] = listener
		server := &http.Server{Handler: w.at(one.Addr), ReadHeaderTimeout: 5 * time.Second,
			ErrorLog: log.New(io.Discard, "", 0), ConnState: keepLittle}
		w.servers = append(w.servers, server)
		go func() { _ = server.Serve(listener) }() // returns on Close
	}
	return w, nil
}

// keepLittle makes a new connection buffer as little as possible of the data that its other end does not take: the log
// counts this data, although nobody may ever read it.
func keepLittle(conn net.Conn, state http.ConnState) {
	if tcp, ok := conn.(*net.TCPConn); ok && state == http.StateNew {
		_ = tcp.SetWriteBuffer(1) // the least there is; without it a busy machine has more in the log
	}
}

// Close stops listening and cuts the open connections.
func (w *Web) Close() {
	for _, server := range w.servers {
		_ = server.Close() // the process ends, or the test
	}
}

// resolver knows the hosts of this web and no others.
func (w *Web) resolver() *fetch.Resolver {
	names := map[string]netip.Addr{
		"intranet.example": netip.MustParseAddr("10.0.0.5"), // no host of ours: a trap
	}
	r := &fetch.Resolver{Own: make(map[netip.Addr]string)}
	for _, one := range w.sites {
		names[one.Host] = one.Addr
		r.Own[one.Addr] = w.listeners[one.Addr].Addr().String()
	}
	r.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		if addr, known := names[host]; known {
			return []netip.Addr{addr}, nil
		}
		return nil, errors.New("no such host")
	}
	return r
}

// at serves the hosts of one address.
func (w *Web) at(addr netip.Addr) http.Handler {
	return http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		for _, one := range w.sites {
			if one.Addr == addr && one.Host == request.Host {
				w.serve(one, reply, request)
				return
			}
		}
		http.Error(reply, "no such host", http.StatusMisdirectedRequest)
	})
}

// serve answers a request and writes it into the log.
func (w *Web) serve(one Site, reply http.ResponseWriter, request *http.Request) {
	noted := &notedReply{ResponseWriter: reply, status: http.StatusOK}
	a := Access{Rules: request.URL.Path == robots.Path, At: time.Now(), Addr: one.Addr.String(), Host: one.Host,
		URL: "http://" + one.Host + request.URL.RequestURI()}
	defer func() {
		a.End, a.Status, a.Bytes = time.Now(), noted.status, noted.bytes
		a.Until = pausedUntil(noted.Header().Get("Retry-After"), a.End)
		a.Whole = !noted.failed && request.Context().Err() == nil
		a.Held = noted.held(a)
		w.Log.Add(a)
	}()
	one.Handler.ServeHTTP(noted, request)
}

// pausedUntil returns the end of the pause that a bundled host asks for, as the host means it: the crawler reads the
// header with another function.
func pausedUntil(header string, from time.Time) time.Time {
	if seconds, err := strconv.Atoi(header); err == nil {
		return from.Add(time.Duration(seconds) * time.Second)
	}
	date, err := time.Parse(http.TimeFormat, header)
	if err != nil {
		return time.Time{}
	}
	return date
}

// notedReply counts the bytes that are sent.
type notedReply struct {
	http.ResponseWriter
	status int
	bytes  int64
	failed bool // the client has hung up
	// When the first and the last bytes that the client took began to be sent.
	first, last time.Time
}

// held returns until when a request was under way at least. If its client hung up, it may have taken only the first
// bytes: the others lie in buffers.
func (r *notedReply) held(a Access) time.Time {
	switch {
	case a.Whole && !r.last.IsZero():
		return r.last
	case !a.Whole && !r.first.IsZero():
		return r.first
	}
	return a.At
}

// WriteHeader notes the status.
func (r *notedReply) WriteHeader(status int) {
	r.status = status
	r.taken(time.Now())
	r.ResponseWriter.WriteHeader(status)
}

// Write notes how much was sent.
func (r *notedReply) Write(p []byte) (int, error) {
	began := time.Now()
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	r.failed = r.failed || err != nil
	if err == nil {
		r.taken(began)
	}
	return n, err
}

func (r *notedReply) taken(began time.Time) {
	if r.first.IsZero() {
		r.first = began
	}
	r.last = began
}

// RobotsViolations counts the requests to this web that its hosts forbid, and the requests to a host that came before
// this or another process had asked for its robots.txt.
func (w *Web) RobotsViolations(accesses []Access, elsewhere map[string]bool) int {
	forbidden := make(map[string]func(string) bool)
	for _, one := range w.sites {
		forbidden[one.Host] = one.forbidden
	}
	violations := 0
	asked := maps.Clone(elsewhere)
	for _, a := range accesses {
		path := strings.TrimPrefix(a.URL, "http://"+a.Host)
		if a.Rules {
			asked[a.Host] = true
		} else if !asked[a.Host] || forbidden[a.Host] != nil && forbidden[a.Host](path) {
			violations++
		}
	}
	return violations
}
