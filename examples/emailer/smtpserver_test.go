package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/worker"
)

func TestSMTPServerFollowsItsScript(t *testing.T) {
	t.Parallel()
	kept, m := startMail(t)
	plain := &mail{id: "m1", from: "Acme <news@acme.example>", to: []string{"ada@hill.example", "ben@hill.example"}, subject: "Hällo", body: "Zeile\n.\nZeile"}
	gone := &mail{id: "m2", from: "news@acme.example", to: []string{"nobody@hill.example"}}
	full := &mail{id: "m3", from: "news@acme.example", to: []string{"ada@hill.example", "full@hill.example"}}

	if err := m.send(t.Context(), plain); err != nil {
		t.Errorf("plain mail: %v", err)
	}
	var refusal *refusedError
	if err := m.send(t.Context(), gone); !errors.As(err, &refusal) || refusal.code != 550 || !strings.HasPrefix(err.Error(), refusedPrefix) {
		t.Errorf("mail to nobody: got %v, want a refusal with 550", err)
	}
	var later *deferredError
	if err := m.send(t.Context(), full); !errors.As(err, &later) || later.code != 452 {
		t.Errorf("mail to a full mailbox: got %v, want it deferred with 452", err)
	}
	if err := worker.SMTPWait(scopeDomain, later); err != nil {
		t.Errorf("a full mailbox is a reason to leave its domain alone: %v", err)
	}
	if err := m.send(t.Context(), full); err != nil {
		t.Errorf("full mailbox, second time: %v", err)
	}

	receipts := kept.all()
	want := []receipt{{mail: "m1", recipients: 2, reply: 250}, {mail: "m2", recipients: 1, reply: 550}, {mail: "m3", recipients: 2, reply: 452}, {mail: "m3", recipients: 2, reply: 250}}
	if len(receipts) != len(want) {
		t.Fatalf("got %d receipts, want %d: %v", len(receipts), len(want), receipts)
	}
	for i, got := range receipts {
		if i > 0 && got.at.Before(receipts[i-1].at) || got.at.IsZero() {
			t.Errorf("receipt %d: its time %s is not in order", i, got.at)
		}
		got.at = want[i].at
		if got != want[i] {
			t.Errorf("receipt %d: got %+v, want %+v", i, got, want[i])
		}
	}
}

// A busy domain refuses everybody until it opens again, and SMTPWait understands it.
func TestSMTPServerClosesADomain(t *testing.T) {
	t.Parallel()
	kept, m := startMail(t)
	busy := &mail{id: "m1", from: "news@acme.example", to: []string{"busy@hill.example"}}
	same := &mail{id: "m2", from: "news@acme.example", to: []string{"ada@hill.example", "ben@hill.example"}}
	other := &mail{id: "m3", from: "news@acme.example", to: []string{"busy.too@lake.example"}}
	for _, one := range []*mail{busy, same} {
		var wait *worker.WaitError
		if err := m.send(t.Context(), one); !errors.As(worker.SMTPWait(scopeDomain, err), &wait) || wait.Delay != 5*time.Minute {
			t.Errorf("mail %s: got %v, want a reply that asks to wait", one.id, err)
		}
	}
	if err := m.send(t.Context(), other); err != nil {
		t.Errorf("mail to another domain: %v", err)
	}
	var got []receipt
	for _, r := range kept.all() {
		r.at = time.Time{}
		got = append(got, r)
	}
	want := []receipt{
		{mail: "m1", recipients: 1, reply: 451, closed: true}, {mail: "m2", recipients: 2, reply: 451, closed: true},
		{mail: "m3", recipients: 1, reply: 250},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSMTPScriptOpensADomainAgain(t *testing.T) {
	t.Parallel()
	var script smtpScript
	for _, row := range []struct {
		after  time.Duration
		to     string
		code   int
		closed bool
	}{
		{0, "ada@hill.example", 0, false},
		{0, "busy@hill.example", 451, true},
		{1, "nobody@Hill.example", 451, true},
		{closedFor - 1, "ada@hill.example", 451, true},
		{closedFor - 1, "nobody@lake.example", 550, false},
		{closedFor, "busy@hill.example", 0, false},
		{closedFor, "nobody@hill.example", 550, false},
	} {
		refusal, closed := script.answer(row.to, zero.Add(row.after))
		code := 0
		if refusal != nil {
			code = refusal.Code
		}
		if code != row.code || closed != row.closed {
			t.Errorf("%s after %s: got %d, closed %t; want %d, %t", row.to, row.after, code, closed, row.code, row.closed)
		}
	}
}

// startMail starts a server inside the test and a mailer to it.
func startMail(t *testing.T) (*record, *mailer) {
	t.Helper()
	kept := new(record)
	server, err := startSMTPServer(kept, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	m, err := newMailer(server.addr, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return kept, m
}

func TestMailerReplacesDeadConnections(t *testing.T) {
	t.Parallel()
	kept, m := startMail(t)
	one := &mail{id: "m1", from: "news@acme.example", to: []string{"ada@hill.example"}}
	if err := m.send(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	conn := <-m.idle
	if err := conn.Close(); err != nil { // as if the server had hung up
		t.Fatal(err)
	}
	m.idle <- conn
	if err := m.send(t.Context(), one); err != nil {
		t.Errorf("after the connection died: %v", err)
	}
	if n := len(kept.all()); n != 2 {
		t.Errorf("%d receipts, want 2", n)
	}
}

func TestMailerNeedsHostAndPort(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"", "mail", "mail:", "mail:smtp", "mail:0", "mail:70000", ":25"} {
		if _, err := newMailer(addr, 1); err == nil || !strings.Contains(err.Error(), "is not host:port") {
			t.Errorf("%q: got %v", addr, err)
		}
	}
}

func TestEnvelopeNamesTheMail(t *testing.T) {
	t.Parallel()
	if got := envelopeMailID(envelopeFrom(&mail{id: "m_1.x-2"})); got != "m_1.x-2" {
		t.Errorf("got %q", got)
	}
	if got := envelopeMailID("someone@else.example"); got != "" {
		t.Errorf("a foreign return path: got %q", got)
	}
}
