package main

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
)

// smtpTimeout bounds the connecting, and each mail on a connection.
const smtpTimeout = 15 * time.Second

// refusedError says that the server refused a mail for good (5xx). Its text
// begins with refusedPrefix, by which a later run knows it in asynq's archive.
type refusedError struct {
	code   int
	reason string // in the server's words
}

const refusedPrefix = "refused for good: "

func (e *refusedError) Error() string { return refusedPrefix + e.reason }

// deferredError says that the server wants the mail later (4xx).
type deferredError struct {
	code   int
	reason string // in the server's words
	cause  error
}

func (e *deferredError) Error() string { return "deferred: " + e.reason }

// Unwrap returns the SMTP client's error, in which worker.SMTPWait finds the reply.
func (e *deferredError) Unwrap() error { return e.cause }

// mailer sends mails to one SMTP server over connections that it keeps. It is
// safe for concurrent use.
type mailer struct {
	client *gomail.Client
	idle   chan *smtp.Client
}

// newMailer returns a mailer to the server at addr (host:port) that keeps up to
// connections open. It takes STARTTLS where the server offers it.
func newMailer(addr string, connections int) (*mailer, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("smtp: %q is not host:port", addr)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 || host == "" {
		return nil, fmt.Errorf("smtp: %q is not host:port", addr)
	}
	client, err := gomail.NewClient(host, gomail.WithPort(int(port)), gomail.WithTimeout(smtpTimeout),
		gomail.WithHELO("emailer.example"), gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	if err != nil {
		return nil, fmt.Errorf("smtp: %w", err)
	}
	return &mailer{client: client, idle: make(chan *smtp.Client, connections)}, nil
}

// check connects once, so that a wrong address is known before any mail.
func (s *mailer) check(ctx context.Context) error {
	conn, err := s.client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return fmt.Errorf("smtp: no server at %s: %w", s.client.ServerAddr(), err)
	}
	s.release(conn)
	return nil
}

// send gives the mail to the server. nil means that the server took it; a
// *refusedError and a *deferredError are its own words, any other error means
// that it did not get to say.
func (s *mailer) send(ctx context.Context, m *mail) error {
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
		return &refusedError{code: code, reason: reasonOf(refusal)}
	case code >= 400:
		return &deferredError{code: code, reason: reasonOf(refusal), cause: refusal}
	}
	return fmt.Errorf("smtp: %w", err)
}

// reasonOf is the library's text without the Message-ID, which is ours.
func reasonOf(refusal *gomail.SendError) string {
	reason, _, _ := strings.Cut(refusal.Error(), ", affected message ID")
	return reason
}

// connect returns a connection that answers: a kept one, or a new one.
func (s *mailer) connect(ctx context.Context) (*smtp.Client, error) {
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
func (s *mailer) keep(conn *smtp.Client, err error) {
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
func (s *mailer) release(conn *smtp.Client) { _ = s.client.CloseWithSMTPClient(conn) }

// Close ends the connections that are kept.
func (s *mailer) Close() {
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
func compose(m *mail) (*gomail.Msg, error) {
	message := gomail.NewMsg()
	if err := message.EnvelopeFrom(envelopeFrom(m)); err != nil {
		return nil, fmt.Errorf("mail %s: %w", m.id, err)
	}
	if err := message.From(m.from); err != nil {
		return nil, fmt.Errorf("mail %s: %w", m.id, err)
	}
	if err := message.To(m.to...); err != nil {
		return nil, fmt.Errorf("mail %s: %w", m.id, err)
	}
	message.Subject(m.subject)
	message.SetDate()
	message.SetMessageIDWithValue(m.id + "@emailer.example")
	message.SetGenHeader(mailIDHeader, m.id)
	message.SetBodyString(gomail.TypeTextPlain, m.body)
	return message, nil
}
