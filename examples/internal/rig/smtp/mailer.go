package smtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
)

// smtpTimeout bounds the connecting, and each mail on a connection.
const smtpTimeout = 15 * time.Second

// RefusedError says that the server refused a mail for good (5xx). Its text
// begins with RefusedPrefix, by which a later run knows it in asynq's archive.
type RefusedError struct {
	Code   int
	Reason string // in the server's words
}

// RefusedPrefix begins the text of a RefusedError.
const RefusedPrefix = "refused for good: "

// Error returns the server's words behind RefusedPrefix.
func (e *RefusedError) Error() string { return RefusedPrefix + e.Reason }

// DeferredError says that the server wants the mail later (4xx).
type DeferredError struct {
	Code   int
	Reason string // in the server's words
	cause  error
}

// Error returns the server's words.
func (e *DeferredError) Error() string { return "deferred: " + e.Reason }

// Unwrap returns the SMTP client's error, in which upstream.SMTPWait finds the reply.
func (e *DeferredError) Unwrap() error { return e.cause }

// Mailer sends mails to one SMTP server over connections that it keeps. It is
// safe for concurrent use.
type Mailer struct {
	client *gomail.Client
	idle   chan *smtp.Client
	Record *Record // what the server received
	Inside bool    // the server is inside the process, and keeps the record
}

// Open returns a mailer to the SMTP server at addr (host:port), or to one inside the process if addr is empty, and
// checks that the server answers. The end of the program closes both.
func Open(ctx context.Context, p *rig.Program, addr string) (*Mailer, error) {
	kept, inside := new(Record), addr == ""
	if inside {
		server, err := StartServer(kept, p.Log)
		if err != nil {
			return nil, err
		}
		p.AtClose(func() { _ = server.Close() })
		addr = server.Addr
	}
	m, err := newMailer(addr, p.Workers)
	if err != nil {
		return nil, err
	}
	m.Record, m.Inside = kept, inside
	p.AtClose(m.Close)
	ctx, cancel := context.WithTimeout(ctx, rig.CheckTimeout)
	defer cancel()
	err = m.check(ctx)
	return m, err
}

// OpenInside returns a mailer to an SMTP server inside the process, over connections that it dials to the server's
// listener. The end of the program closes both.
func OpenInside(
	ctx context.Context, p *rig.Program, listener net.Listener, dial gomail.DialContextFunc,
) (*Mailer, error) {
	kept := new(Record)
	server, err := serve(listener, kept, p.Log)
	if err != nil {
		return nil, err
	}
	p.AtClose(func() { _ = server.Close() })
	m, err := newMailer(server.Addr, p.Workers, gomail.WithDialContextFunc(dial))
	if err != nil {
		return nil, err
	}
	m.Record, m.Inside = kept, true
	p.AtClose(m.Close)
	err = m.check(ctx)
	return m, err
}

// RecordOf returns who keeps the record, for the report.
func (s *Mailer) RecordOf() string {
	if s.Inside {
		return "SMTP server"
	}
	return "client's acknowledgements"
}

// newMailer returns a mailer to the server at addr (host:port) that keeps up to
// connections open. It takes STARTTLS where the server offers it.
func newMailer(addr string, connections int, more ...gomail.Option) (*Mailer, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("smtp: %q is not host:port", addr)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 || host == "" {
		return nil, fmt.Errorf("smtp: %q is not host:port", addr)
	}
	client, err := gomail.NewClient(host, append(more, gomail.WithPort(int(port)), gomail.WithTimeout(smtpTimeout),
		gomail.WithHELO("emailer.example"), gomail.WithTLSPolicy(gomail.TLSOpportunistic))...)
	if err != nil {
		return nil, fmt.Errorf("smtp: %w", err)
	}
	return &Mailer{client: client, idle: make(chan *smtp.Client, connections)}, nil
}

// check connects once, so that a wrong address is known before any mail.
func (s *Mailer) check(ctx context.Context) error {
	conn, err := s.client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return fmt.Errorf("smtp: no server at %s: %w", s.client.ServerAddr(), err)
	}
	s.release(conn)
	return nil
}

// Send gives the mail to the server. nil means that the server took it. A *RefusedError and a *DeferredError have the
// server's words; any other error means that the server did not get to answer.
func (s *Mailer) Send(ctx context.Context, m *campaign.Mail) error {
	message, err := compose(m)
	if err != nil {
		return err
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	err = s.client.SendWithSMTPClient(conn, message)
	if err == nil || message.IsDelivered() {
		s.keep(conn, err)
		return nil
	}
	s.keep(conn, err)
	var refusal *gomail.SendError
	if !errors.As(err, &refusal) {
		return fmt.Errorf("smtp: %w", err)
	}
	switch code := refusal.ErrorCode(); {
	case code >= 500:
		return &RefusedError{Code: code, Reason: reasonOf(refusal)}
	case code >= 400:
		return &DeferredError{Code: code, Reason: reasonOf(refusal), cause: refusal}
	}
	return fmt.Errorf("smtp: %w", err)
}

// reasonOf returns the library's text without the Message-ID, which is ours.
func reasonOf(refusal *gomail.SendError) string {
	reason, _, _ := strings.Cut(refusal.Error(), ", affected message ID")
	return reason
}

// connect returns a connection that answers: a kept one, or a new one.
func (s *Mailer) connect(ctx context.Context) (*smtp.Client, error) {
	for {
		select {
		case conn := <-s.idle:
			if conn.UpdateDeadline(smtpTimeout) == nil && conn.Noop() == nil {
				return conn, nil
			}
			s.release(conn) // the server hung up meanwhile
		default:
			conn, err := s.client.DialToSMTPClientWithContext(ctx)
			if err != nil {
				return nil, fmt.Errorf("smtp: connect: %w", err)
			}
			return conn, nil
		}
	}
}

// keep puts the connection back after a mail, unless it is in doubt: only a
// refusal before the message itself leaves it as it was.
func (s *Mailer) keep(conn *smtp.Client, err error) {
	var refusal *gomail.SendError
	if err != nil && (!errors.As(err, &refusal) || refusal.ErrorCode() == 0 || refusal.Reason != gomail.ErrSMTPRcptTo) {
		s.release(conn)
		return
	}
	select {
	case s.idle <- conn:
	default:
		s.release(conn)
	}
}

// release ends a connection. An error in saying goodbye changes nothing.
func (s *Mailer) release(conn *smtp.Client) { _ = s.client.CloseWithSMTPClient(conn) }

// Close ends the connections that are kept.
func (s *Mailer) Close() {
	for {
		select {
		case conn := <-s.idle:
			s.release(conn)
		default:
			return
		}
	}
}

// compose makes the message. Its Message-ID is the same in every attempt, so
// that a receiver can tell a copy.
func compose(m *campaign.Mail) (*gomail.Msg, error) {
	message := gomail.NewMsg()
	if err := message.EnvelopeFrom(envelopeFrom(m)); err != nil {
		return nil, fmt.Errorf("mail %s: %w", m.ID, err)
	}
	if err := message.From(m.From); err != nil {
		return nil, fmt.Errorf("mail %s: %w", m.ID, err)
	}
	if err := message.To(m.To...); err != nil {
		return nil, fmt.Errorf("mail %s: %w", m.ID, err)
	}
	message.Subject(m.Subject)
	message.SetDate()
	message.SetMessageIDWithValue(m.ID + "@emailer.example")
	message.SetGenHeader(mailIDHeader, m.ID)
	message.SetBodyString(gomail.TypeTextPlain, m.Body)
	return message, nil
}
