package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// codedError is an error like go-mail's: a method returns its code.
type codedError struct {
	code int
	text string
}

func (e codedError) Error() string  { return e.text }
func (e codedError) ErrorCode() int { return e.code }

// TestSMTPReplies_F61: which replies ask to wait, and how long, if the code is
// known as a number.
func TestSMTPReplies_F61(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		code int
		text string
		want time.Duration // 0: no wait
	}{
		{421, "Service not available", time.Minute},
		{421, "4.3.2 Too many connections", time.Minute},
		{421, "4.2.1 Try again later", time.Minute}, // a closed channel is not about one mailbox
		{421, "4.7.0 Rate limited", 5 * time.Minute},
		{421, "4.7.28 Unusual rate of mail", 5 * time.Minute},
		{421, "4.4.2 Timeout exceeded", 0},
		{454, "TLS not available", time.Minute},
		{454, "4.7.0 Temporary authentication failure", time.Minute},
		{432, "4.3.2 Concurrent connections limit exceeded", 5 * time.Minute},
		{432, "4.7.12 A password transition is needed", time.Hour},
		{450, "Mailbox busy", 5 * time.Minute},
		{450, "4.7.1 Greylisted", 5 * time.Minute},
		{450, "4.0.0 Later", 5 * time.Minute},
		{450, "4.1.8 Sender's domain not found", 0},
		{450, "4.2.1 That user receives mail too quickly", 0},
		{451, "Local error", 5 * time.Minute},
		{451, "4.3.0 Queue file write error", 5 * time.Minute},
		{451, "4.6.1 Media not supported", 0},
		{452, "Insufficient storage", 15 * time.Minute},
		{452, "4.3.1 Mail system full", 15 * time.Minute},
		{452, "4.2.2 Mailbox full", 0},
		{452, "4.5.3 Too many recipients", 0},
		{455, "Cannot accommodate parameters", 0},
		{499, "4.7.0 Nobody's code", 0},
		{500, "Unknown command", 0},
		{550, "5.7.1 Rejected", 0},
		{550, "said the next one: 421 4.7.0 Later", 0},
		{554, "5.7.1 Blocked", 0},
		{220, "Ready", 0},
		{0, "", 0},
		{-421, "", 0},
		{4210, "", 0},
	} {
		reply := &textproto.Error{Code: row.code, Msg: row.text}
		for name, err := range map[string]error{
			"textproto": reply,
			"wrapped":   fmt.Errorf("send to 450 Main Street: %w", reply),
			"joined":    errors.Join(io.EOF, fmt.Errorf("send: %w", reply)),
			"coded": codedError{row.code,
				fmt.Sprintf("sending SMTP RCPT TO command: %d %q, affected recipient(s): a@b.example", row.code, row.text)},
			"coded, as older Go writes replies": codedError{row.code,
				fmt.Sprintf("sending SMTP RCPT TO command: %d %s", row.code, row.text)},
		} {
			if got := smtpWait(t, err); got != row.want {
				t.Errorf("%d %s, %s: got %v, want %v", row.code, row.text, name, got, row.want)
			}
		}
	}
}

// TestSMTPWait_Several_F61: of several replies, the longest wait counts, also
// beside recipients that are refused for good.
func TestSMTPWait_Several_F61(t *testing.T) {
	t.Parallel()
	refused := &textproto.Error{Code: 550, Msg: "5.1.1 No such user"}
	busy := &textproto.Error{Code: 421, Msg: "Busy"}
	full := &textproto.Error{Code: 452, Msg: "4.3.1 Full"}
	for _, row := range []struct {
		err  error
		want time.Duration
	}{
		{errors.Join(refused, busy), time.Minute},
		{errors.Join(busy, full), 15 * time.Minute},
		{fmt.Errorf("%w, then %w", full, busy), 15 * time.Minute},
		{errors.Join(refused, refused), 0},
		{errors.Join(busy, errors.New("451 Local error")), 5 * time.Minute},
		// go-mail's code is of the last recipient, its text of all.
		{codedError{451, "sending SMTP RCPT TO command: 550 5.1.1 No such user, 451 Local error"}, 5 * time.Minute},
		{codedError{550, "sending SMTP RCPT TO command: 451 Local error, 550 5.1.1 No such user"}, 0},
		// Its code is 0 if it does not know; one beyond SMTP says no more.
		{codedError{0, "checking SMTP connection: 421 Busy"}, time.Minute},
		{codedError{1205, "checking SMTP connection: 421 Busy"}, time.Minute},
	} {
		if got := smtpWait(t, row.err); got != row.want {
			t.Errorf("%q: got %v, want %v", row.err, got, row.want)
		}
	}
}

// TestSMTPWait_NoReply_F61: an error without a reply is a failure like any other, and asynq
// retries the mail.
func TestSMTPWait_NoReply_F61(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		nil,
		io.EOF,
		io.ErrUnexpectedEOF,
		context.DeadlineExceeded,
		os.ErrDeadlineExceeded,
		&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")},
		textproto.ProtocolError("short response: 42"),
		codedError{0, "checking SMTP connection: EOF"},
	} {
		if got := smtpWait(t, err); got != 0 {
			t.Errorf("%v: got a wait of %v, want none", err, got)
		}
	}
}

// TestSMTPWait_Text_F61: which numbers in a text are reply codes.
func TestSMTPWait_Text_F61(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text string
		want time.Duration // 0: no wait
	}{
		// Replies as clients write them.
		{"421 Service not available", time.Minute},
		{"421", time.Minute},
		{"421\r\n", time.Minute},
		{`421 "Service not available"`, time.Minute},
		{`421 "4.7.0 Try again later"`, 5 * time.Minute},
		{"421 4.7.0", 5 * time.Minute},
		{"421-4.7.0 Our system has detected\n421 4.7.0 an unusual rate", 5 * time.Minute},
		{"421-Too many\n421 connections", 0},                            // errs on the side of a retry
		{"421-Too many\n421 Connections from your host", 0},             // the same
		{"421-Too many\n421 Come back later", time.Minute},              // the last line of a reply has a space
		{"452 Out of storage", 15 * time.Minute},                        // no count
		{"452 Message size exceeds what is left", 15 * time.Minute},     // no count
		{"450 Mailbox busy", 5 * time.Minute},                           // no count
		{"SMTP error 421", time.Minute},                                 // go-smtp without a text
		{"SMTP error 421: Too busy", time.Minute},                       // go-smtp
		{"rcpt: SMTP error 450: Greylisted", 5 * time.Minute},           // go-smtp, wrapped as text
		{"smtp: connect: 421 Too many connections", time.Minute},        // as text, in an error that speaks of SMTP
		{"sending SMTP DATA command: 451 Local error", 5 * time.Minute}, // go-mail
		{"sending SMTP MAIL FROM command: 452 Insufficient system storage, affected message ID: <550.1@a.example>",
			15 * time.Minute},
		{`deferred: sending SMTP RCPT TO command: 451 "4.7.1 Greylisted, come back", ` +
			`affected recipient(s): greylist@web.example`, 5 * time.Minute},
		{`deferred: sending SMTP RCPT TO command: 450 "4.2.1 Too quickly"`, 0},
		{"send mail 7: host mx.acme.example said: 421 4.7.0 Try again later (in reply to MAIL FROM)", 5 * time.Minute},
		{"delivery temporarily suspended (421 4.3.2 Going down)", time.Minute},
		{"EOF\n421 Going down", time.Minute}, // joined

		// Replies for good, whatever is said in them.
		{"550 No such user", 0},
		{"550 5.7.1 Rejected: 421 4.7.0 said the next one", 0},
		{"SMTP error 554: Blocked\n421 Later", 0},
		{"refused for good: sending SMTP RCPT TO command: 550 5.1.1 Unknown, 421 4.7.0 Later", 0},

		// Other numbers.
		{"", 0},
		{"42", 0},
		{"wrote 452 bytes", 0},
		{"452 bytes written, then EOF", 0},
		{"452 of 1000 recipients failed", 0},
		{"450 recipients failed", 0},
		{"421 ms elapsed", 0},
		{"421 KiB left", 0},
		{"421µs", 0},
		{"smtp: message: 452 bytes written", 0},
		{"SMTP error 452 bytes in", 0},
		{"size: 452 bytes", 0},
		{"upstream: 421 Misdirected Request", 0}, // a colon, but nobody spoke of SMTP
		{"dial smtp.example.com: 450 things went wrong", 0},
		{"not-smtp@example.com: 450 things went wrong", 0},
		{"not-smtp: 450 things went wrong", 0},
		{"SMTP: 4210 things", 0},
		{"SMTP: 451.5 things", 0},
		{"SMTP: 421@example.com is unknown", 0},
		{"SMTP: RCPT TO:<450@example.com> failed", 0},
		{"dial tcp 10.4.21.450:25: connection refused", 0},
		{"dial tcp 127.0.0.1:421: connection refused", 0},
		{"dial tcp [2001:db8::421]:25: i/o timeout", 0},
		{"no route to 421 Main Street", 0},
		{"mail 421 failed", 0},
		{"version 421 4.7", 0},
		{"421.4.7.0", 0},
		{"1421 4.7.0 units", 0},
		{"mx-421 4.7.0 is no version", 0},
		{"421 4.7.0.1 is an address", time.Minute}, // at the beginning it is a reply, without an enhanced code
		{"host 421 4.7.0.1 is an address", 0},
		{"host 421 5.7.0 are of two classes", 0},
		{"４２１ full width", 0},
		{strings.Repeat("x", 5000) + "\n421 Later", 0}, // beyond what is searched
	} {
		if got := smtpWait(t, errors.New(row.text)); got != row.want {
			t.Errorf("%.100q: got %v, want %v", row.text, got, row.want)
		}
	}
}

// smtpWait returns the wait that err asks for; 0 if it asks for none.
func smtpWait(t *testing.T, err error) time.Duration {
	t.Helper()
	wait, asked := upstream.SMTPWait(err)
	if wait < 0 || wait > upstream.MaxWait || asked != (wait > 0) {
		t.Errorf("%q: got %v, %t", err, wait, asked)
	}
	return wait
}

// FuzzSMTPWait: any text, plain, as the text of a reply and with any code, is a wait within the
// bounds or no wait, and the same each time.
func FuzzSMTPWait(f *testing.F) {
	for _, text := range []string{"", "421", "421 4.7.0 Later", "421-4.7.0 Later\n421 4.7.0 Now",
		"SMTP error 450: Busy", "452 bytes",
		"sending SMTP RCPT TO command: 451 \"4.7.1 Greylisted\"", "550 5.7.1 421 4.7.0", "smtp: 432 4.7.12",
		"dial tcp 127.0.0.1:421: EOF"} {
		f.Add(text, 421)
	}
	f.Fuzz(func(t *testing.T, text string, code int) {
		plain := errors.New(text)
		for _, err := range []error{
			plain,
			&textproto.Error{Code: code, Msg: text},
			codedError{code, text},
			fmt.Errorf("%s: %w", text, plain),
			errors.Join(plain, codedError{code, text}),
		} {
			if first, again := smtpWait(t, err), smtpWait(t, err); first != again {
				t.Errorf("%q: got %v, then %v", err, first, again)
			}
		}
		if code >= 500 && code <= 599 && smtpWait(t, codedError{code, text}) != 0 {
			t.Errorf("%d %q: a reply for good is a wait", code, text)
		}
		if !strings.Contains(text, "4") && smtpWait(t, plain) != 0 {
			t.Errorf("%q: a wait without a code", text)
		}
	})
}
