// Package smtp has an SMTP server on loopback that records what it received, and a client
// that sends mails over connections that it keeps.
package smtp

import (
	"fmt"
	"io"
	"net"
	netmail "net/mail"
	"strings"
	"time"

	"github.com/emersion/go-smtp"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
)

// mailIDHeader carries the mail's id, so that the server's record can tell one
// mail from another by what it received.
const mailIDHeader = "X-Mail-ID"

// Server is an SMTP server on loopback that accepts mail, keeps none of it,
// and records what it received and when.
type Server struct {
	server *smtp.Server
	Addr   string
	record *Record
	script script
}

// StartServer listens on a free port of 127.0.0.1. Close it in the end.
func StartServer(record *Record, logger *zap.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("smtp server: %w", err)
	}
	return serve(listener, record, logger)
}

func serve(listener net.Listener, record *Record, logger *zap.Logger) (_ *Server, err error) {
	s := &Server{Addr: listener.Addr().String(), record: record}
	s.server = smtp.NewServer(smtp.BackendFunc(s.session))
	s.server.Domain = "mx.emailer.example"
	s.server.ReadTimeout = time.Minute
	s.server.WriteTimeout = time.Minute
	s.server.MaxRecipients = campaign.MaxRecipients
	s.server.MaxMessageBytes = 1 << 20
	s.server.EnableSMTPUTF8 = true
	if s.server.ErrorLog, err = zap.NewStdLogAt(logger.Named("smtp-server"), zap.DebugLevel); err != nil {
		return nil, fmt.Errorf("smtp server: %w", err)
	}
	go func() { _ = s.server.Serve(listener) }() // returns on Close
	return s, nil
}

// Close stops listening and cuts the open connections.
func (s *Server) Close() error { return s.server.Close() }

func (s *Server) session(*smtp.Conn) (smtp.Session, error) { return &session{server: s}, nil }

// session is one connection, with one mail after another.
type session struct {
	server *Server
	from   string
	began  time.Time // when the current mail was begun
	tried  int       // recipients asked for in the current mail
	reply  int       // the reply that refused one of these recipients
	closed bool      // this reply said that the domain takes nothing now
	last   time.Time // when the last of these recipients was answered
}

// Mail begins a mail.
func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from, s.began = from, time.Now()
	return nil
}

// Rcpt answers one recipient by the script.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.tried++
	s.last = time.Now()
	refusal, closed := s.server.script.answer(to, s.last)
	if refusal == nil {
		return nil
	}
	s.reply, s.closed = refusal.Code, s.closed || closed
	return refusal
}

// Data accepts the message, which is named by its own header.
func (s *session) Data(r io.Reader) error {
	message, err := netmail.ReadMessage(r)
	if err != nil {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "Message has no readable header"}
	}
	if _, err := io.Copy(io.Discard, message.Body); err != nil {
		return err
	}
	s.server.record.Add(Receipt{Began: s.began, At: time.Now(), Mail: message.Header.Get(mailIDHeader),
		Recipients: s.tried, Reply: ReplyAccepted})
	s.tried = 0
	return nil
}

// Reset ends the current mail. A mail that was not accepted is recorded too, since its recipients were asked for.
func (s *session) Reset() {
	if s.tried > 0 {
		s.server.record.Add(Receipt{Began: s.began, At: s.last, Mail: envelopeMailID(s.from), Recipients: s.tried,
			Reply: s.reply, Closed: s.closed})
	}
	s.from, s.tried, s.reply, s.closed = "", 0, ReplyNone, false
}

// Logout ends the connection.
func (s *session) Logout() error {
	s.Reset()
	return nil
}

// envelopeFrom returns the return path of a mail. It names the mail, as bulk mailers do to tell bounces apart: a server
// sees it before it sees the message.
func envelopeFrom(m *campaign.Mail) string { return "bounce+" + m.ID + "@emailer.example" }

// envelopeMailID returns the mail's ID from a return path that envelopeFrom made, and nothing from any other.
func envelopeMailID(from string) string {
	local, _, _ := strings.Cut(from, "@")
	if id, ours := strings.CutPrefix(local, "bounce+"); ours {
		return id
	}
	return ""
}
