// Package loopback serves pages to this machine alone, for programs without
// authentication.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Listen listens at host:port. It refuses hosts other than localhost and loopback
// addresses; port 0 picks a free port.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%q is not host:port, such as 127.0.0.1:8081", addr)
	}
	if !local(host) {
		return nil,
			fmt.Errorf(
				"%s is not on loopback, such as 127.0.0.1:8081: to reach the pages from elsewhere, mount them in a "+
					"program of your own, behind its authentication", addr)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}

// Serve serves a handler until ctx ends, which ends requests that never end by themselves
// too. It refuses requests for other names than loopback's: a page of another site cannot
// reach the handler by a name that resolves to this machine.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           only(handler),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(patient) != nil {
			_ = server.Close() // a client is still connected
		}
	})
	err := server.Serve(listener)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// bodyTime bounds how long the body of a request may take.
const bodyTime = 10 * time.Second

// only refuses requests for names that are not this machine's.
func only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !local(strings.Trim(host, "[]")) {
			http.Error(w, "ask for 127.0.0.1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		if r.ContentLength != 0 { // a read time-out of the server would end requests that go on
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
		}
		next.ServeHTTP(w, r)
	})
}

func local(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
