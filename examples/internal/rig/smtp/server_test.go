package smtp

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/upstream"
)

func TestSMTPServerFollowsItsScript(t *testing.T) {
	t.Parallel()
	kept, m := startMail(t)
	plain := &campaign.Mail{ID: "m1", From: "Acme <news@acme.example>",
		To: []string{"ada@hill.example", "ben@hill.example"}, Subject: "Hällo", Body: "Zeile\n.\nZeile"}
	gone := &campaign.Mail{ID: "m2", From: "news@acme.example", To: []string{"nobody@hill.example"}}
	full := &campaign.Mail{ID: "m3", From: "news@acme.example", To: []string{"ada@hill.example", "full@hill.example"}}

	if err := m.Send(t.Context(), plain); err != nil {
		t.Errorf("plain mail: %v", err)
	}
	var refusal *RefusedError
	if err := m.Send(t.Context(), gone); !errors.As(err, &refusal) || refusal.Code != 550 ||
		!strings.HasPrefix(err.Error(), RefusedPrefix) {
		t.Errorf("mail to nobody: got %v, want a refusal with 550", err)
	}
	var later *DeferredError
	if err := m.Send(t.Context(), full); !errors.As(err, &later) || later.Code != 452 {
		t.Errorf("mail to a full mailbox: got %v, want it deferred with 452", err)
	}
	if wait, asked := upstream.SMTPWait(later); asked {
		t.Errorf("a full mailbox is a reason to leave its domain alone for %s", wait)
	}
	if err := m.Send(t.Context(), full); err != nil {
		t.Errorf("full mailbox, second time: %v", err)
	}

	receipts := kept.All()
	want := []Receipt{{Mail: "m1", Recipients: 2, Reply: 250}, {Mail: "m2", Recipients: 1, Reply: 550},
		{Mail: "m3", Recipients: 2, Reply: 452}, {Mail: "m3", Recipients: 2, Reply: 250}}
	if len(receipts) != len(want) {
		t.Fatalf("got %d receipts, want %d: %v", len(receipts), len(want), receipts)
	}
	for i, got := range receipts {
		if i > 0 && got.At.Before(receipts[i-1].At) || got.At.IsZero() {
			t.Errorf("receipt %d: its time %s is not in order", i, got.At)
		}
		if got.Began.IsZero() || got.Began.After(got.At) {
			t.Errorf("receipt %d: begun at %s, answered at %s", i, got.Began, got.At)
		}
		got.At, got.Began = want[i].At, want[i].Began
		if got != want[i] {
			t.Errorf("receipt %d: got %+v, want %+v", i, got, want[i])
		}
	}
}

// A busy domain refuses everybody until it opens again, and SMTPWait understands the refusals.
func TestSMTPServerClosesADomain(t *testing.T) {
	t.Parallel()
	kept, m := startMail(t)
	busy := &campaign.Mail{ID: "m1", From: "news@acme.example", To: []string{"busy@hill.example"}}
	same := &campaign.Mail{ID: "m2", From: "news@acme.example", To: []string{"ada@hill.example", "ben@hill.example"}}
	other := &campaign.Mail{ID: "m3", From: "news@acme.example", To: []string{"busy.too@lake.example"}}
	for _, one := range []*campaign.Mail{busy, same} {
		err := m.Send(t.Context(), one)
		if wait, asked := upstream.SMTPWait(err); !asked || wait != 5*time.Minute {
			t.Errorf("mail %s: got %v, want a reply that asks to wait", one.ID, err)
		}
	}
	if err := m.Send(t.Context(), other); err != nil {
		t.Errorf("mail to another domain: %v", err)
	}
	var got []Receipt
	for _, r := range kept.All() {
		r.At, r.Began = time.Time{}, time.Time{}
		got = append(got, r)
	}
	want := []Receipt{
		{Mail: "m1", Recipients: 1, Reply: 451, Closed: true}, {Mail: "m2", Recipients: 2, Reply: 451, Closed: true},
		{Mail: "m3", Recipients: 1, Reply: 250},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSMTPScriptOpensADomainAgain(t *testing.T) {
	t.Parallel()
	var script script
	for _, row := range []struct {
		after  time.Duration
		to     string
		code   int
		closed bool
	}{
		{0, "ada@hill.example", 0, false},
		{0, "busy@hill.example", 451, true},
		{1, "nobody@Hill.example", 451, true},
		{ClosedFor - 1, "ada@hill.example", 451, true},
		{ClosedFor - 1, "nobody@lake.example", 550, false},
		{ClosedFor, "busy@hill.example", 0, false},
		{ClosedFor, "nobody@hill.example", 550, false},
	} {
		refusal, closed := script.answer(row.to, time.Unix(1_700_000_000, 0).Add(row.after))
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
func startMail(t *testing.T) (*Record, *Mailer) {
	t.Helper()
	kept := new(Record)
	server, err := StartServer(kept, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	m, err := newMailer(server.Addr, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return kept, m
}

func TestMailerReplacesDeadConnections(t *testing.T) {
	t.Parallel()
	kept, m := startMail(t)
	one := &campaign.Mail{ID: "m1", From: "news@acme.example", To: []string{"ada@hill.example"}}
	if err := m.Send(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	conn := <-m.idle
	if err := conn.Close(); err != nil { // as if the server had hung up
		t.Fatal(err)
	}
	m.idle <- conn
	if err := m.Send(t.Context(), one); err != nil {
		t.Errorf("after the connection died: %v", err)
	}
	if n := len(kept.All()); n != 2 {
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
	if got := envelopeMailID(envelopeFrom(&campaign.Mail{ID: "m_1.x-2"})); got != "m_1.x-2" {
		t.Errorf("got %q", got)
	}
	if got := envelopeMailID("someone@else.example"); got != "" {
		t.Errorf("a foreign return path: got %q", got)
	}
}

// The bundled campaign has mails to each kind of recipient that the bundled server's script knows.
func TestBundledCampaignFollowsTheScript(t *testing.T) {
	t.Parallel()
	c, err := campaign.Open("")
	if err != nil {
		t.Fatal(err)
	}
	locals := make(map[string]int)
	for _, m := range c.Mails {
		if m.Units() == 1 {
			local, _, _ := strings.Cut(m.To[0], "@")
			locals[local]++
		}
	}
	if locals[localNobody] != 1 || locals[localFull] < 1 || locals[localBusy] != 2 {
		t.Errorf("%d mails to nobody, %d to full, %d to busy", locals[localNobody], locals[localFull], locals[localBusy])
	}
}

// Every mail that a campaign may hold can be composed.
func FuzzCompose(f *testing.F) {
	f.Add("id,at,tenant,from,to,subject,body\nm1,0s,acme,me@acme.example,ada@hill.example,Hi,Text\n")
	f.Add("id,tenant,from,to,subject\n1,a,b@c,d@e f@e,g\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := campaign.Load("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, m := range c.Mails {
			if _, err := compose(m); err != nil {
				t.Errorf("accepted a mail that cannot be composed: %v", err)
			}
		}
	})
}
