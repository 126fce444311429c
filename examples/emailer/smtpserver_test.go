package main

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestSMTPServerFollowsItsScript(t *testing.T) {
	t.Parallel()
	kept, m := startMail(t)
	plain := &mail{id: "m1", from: "Acme <news@acme.example>", to: []string{"ada@hill.example", "ben@hill.example"}, subject: "Hällo", body: "Zeile\n.\nZeile"}
	gone := &mail{id: "m2", from: "news@acme.example", to: []string{"nobody@hill.example"}}
	grey := &mail{id: "m3", from: "news@acme.example", to: []string{"ada@hill.example", "greylist@hill.example"}}

	if err := m.send(t.Context(), plain); err != nil {
		t.Errorf("plain mail: %v", err)
	}
	var refusal *refusedError
	if err := m.send(t.Context(), gone); !errors.As(err, &refusal) || refusal.code != 550 || !strings.HasPrefix(err.Error(), refusedPrefix) {
		t.Errorf("mail to nobody: got %v, want a refusal with 550", err)
	}
	var later *deferredError
	if err := m.send(t.Context(), grey); !errors.As(err, &later) || later.code != 451 {
		t.Errorf("greylisted mail: got %v, want it deferred with 451", err)
	}
	if err := m.send(t.Context(), grey); err != nil {
		t.Errorf("greylisted mail, second time: %v", err)
	}

	receipts := kept.all()
	want := []receipt{{mail: "m1", recipients: 2, reply: 250}, {mail: "m2", recipients: 1, reply: 550}, {mail: "m3", recipients: 2, reply: 451}, {mail: "m3", recipients: 2, reply: 250}}
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
