package provider

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
)

// Upstream is the provider that a run asks.
type Upstream struct {
	Client *chat.Client
	Inside *Provider // nil for a real provider
	Record *Record   // its requests: kept by the provider inside, or by the client of a real provider
}

// RecordOf returns who keeps the record, for the report.
func (u *Upstream) RecordOf() string {
	if u.Inside != nil {
		return "provider"
	}
	return "client's log"
}

// Open returns the provider at a base URL, or one inside the process if the URL is empty. The timeout bounds one
// request. The end of the program closes the provider.
func Open(p *rig.Program, baseURL, key string, timeout time.Duration, inside Options) (*Upstream, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: p.Workers,
		IdleConnTimeout: time.Minute}
	u := &Upstream{
		Client: &chat.Client{BaseURL: baseURL, Key: key, HTTP: &http.Client{Transport: transport, Timeout: timeout}},
		Record: new(Record),
	}
	if baseURL == "" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("provider: %w", err)
		}
		u.Inside = New(inside)
		u.Record, u.Client.BaseURL = u.Inside.Record, "http://"+listener.Addr().String()+"/v1"
		server := &http.Server{Handler: u.Inside, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
		go func() { _ = server.Serve(listener) }() // returns on Close
		p.AtClose(func() { _ = server.Close() })
	}
	p.AtClose(transport.CloseIdleConnections)
	return u, nil
}
