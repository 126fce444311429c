package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/completion"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
	"github.com/asynq-throttle/asynq-throttle/internal/idle"
)

// world is a Redis and a provider in a bubble of virtual time. There a run takes no longer than its work, and nothing
// else on the machine disturbs it.
type world struct {
	t      *testing.T
	redis  *miniredis.Miniredis
	inside *provider.Provider
	// answers stands before the provider; nil lets all requests through.
	answers http.Handler
	// elsewhere makes the program treat the provider as one that keeps no record for it.
	elsewhere bool
}

// inBubble runs a test in virtual time. Such a test is not parallel to tests in real time: it takes a whole core, and
// they would be late.
func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, redis: miniredis.NewMiniRedis()}
		t.Cleanup(w.redis.Close)
		idle.Answer(t, w.redis)
		test(w)
	})
}

// RoundTrip implements http.RoundTripper without a network.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	reply := httptest.NewRecorder()
	if w.answers != nil {
		w.answers.ServeHTTP(reply, r)
	} else {
		w.inside.ServeHTTP(reply, r)
	}
	return reply.Result(), r.Context().Err()
}

// run runs the program until its end, or that of ctx.
func (w *world) run(ctx context.Context, args ...string) (*completion.Report, error) {
	w.t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) { return w.redis.Dial() },
		DisableIdentity: true, ContextTimeoutEnabled: true, PoolSize: 64,
	})
	defer func() { _ = client.Close() }()
	p := rig.New("llm", io.Discard, io.Discard)
	defer p.Close()
	o, err := parseOptions(p, args)
	if err != nil {
		w.t.Fatal(err)
	}
	p.Client, p.Log = client, zap.NewNop()
	w.inside = provider.New(o.bundled())
	upstream := &provider.Upstream{Client: &chat.Client{BaseURL: "http://provider.example/v1",
		HTTP: &http.Client{Transport: w}}, Record: new(provider.Record)}
	if !w.elsewhere {
		upstream.Inside, upstream.Record = w.inside, w.inside.Record
	}
	a, err := newAssistant(p, o, upstream)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Minute)
	defer cancel()
	return a.run(ctx)
}

// text returns a report as a person reads it.
func text(r *completion.Report) string {
	var text bytes.Buffer
	r.Write(&text)
	return text.String()
}
