package main

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/delivery"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
	"github.com/asynq-throttle/asynq-throttle/internal/idle"
)

// bubbleExpires is how often miniredis removes expired keys. A bubble does this less often than the program, and so
// plays days in seconds.
const bubbleExpires = 5 * time.Second

// bubbleLooks lets asynq look for tasks less often, too. Tasks are woken maxWait before their slots, and asynq looks
// twice in that time.
var bubbleLooks = asynq.Config{TaskCheckInterval: maxWait / 2, DelayedTaskCheckInterval: time.Minute}

// inBubble runs the program in virtual time, from an instant on until the campaign ends: with asynq, a miniredis and
// the SMTP server. before is called before the first mail.
func inBubble(
	t *testing.T, from time.Time, c *campaign.Campaign, args []string, before func(e *emailer),
) *delivery.Report {
	t.Helper()
	var report *delivery.Report
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(from))
		inside := miniredis.NewMiniRedis()
		t.Cleanup(inside.Close)
		idle.AnswerPulls(t, inside)
		expiring, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for rig.SleepUntil(expiring, time.Now().Add(bubbleExpires)) {
				inside.FastForward(bubbleExpires)
			}
		}()
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) { return inside.Dial() },
			DisableIdentity: true, ContextTimeoutEnabled: true, PoolSize: 64,
		})
		defer func() { _ = client.Close() }()
		p := rig.New("emailer", io.Discard, io.Discard)
		defer p.Close()
		o, err := parseOptions(p, args)
		if err != nil {
			t.Fatal(err)
		}
		p.Client, p.Log = client, zap.NewNop()
		e := &emailer{options: o, Program: p, campaign: c, looks: bubbleLooks}
		wires := &pipes{ends: make(chan net.Conn), closed: make(chan struct{})}
		if e.mailer, err = smtp.OpenInside(t.Context(), p, wires, wires.dial); err != nil {
			t.Fatal(err)
		}
		if err := e.wire(t.Context()); err != nil {
			t.Fatal(err)
		}
		before(e)
		report = e.ledger.Report(e.run(t.Context()))
	})
	return report
}

// pipes is a listener inside the process.
type pipes struct {
	ends   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, near := net.Pipe()
	far, theirs := net.Pipe()
	select {
	case p.ends <- theirs:
		go carry(near, far)
		go carry(far, near)
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// carry copies the output of one pipe into another. A pipe has no buffer: without carry, a write would wait for a
// reader, such as the last reply with which the server ends a connection at night.
func carry(from, into net.Conn) {
	_, _ = io.Copy(into, from) // ends when either is closed
	_, _ = from.Close(), into.Close()
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case end := <-p.ends:
		return end, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 25} }
