package smtp_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	netsmtp "net/smtp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	gomail "github.com/wneessen/go-mail"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// TestSMTPClients_F61 lets common clients talk to a server that asks to wait, and pins what their errors contain.
func TestSMTPClients_F61(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reply *smtp.SMTPError // the server's reply to RCPT; nil breaks the connection in the message
		want  time.Duration
		goes  time.Duration // go-smtp, whose error does not say the enhanced code
	}{
		{&smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 7, 0}, Message: "Rate limited"},
			5 * time.Minute, time.Minute},
		{&smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "Greylisted"},
			5 * time.Minute, 5 * time.Minute},
		{&smtp.SMTPError{Code: 452, EnhancedCode: smtp.EnhancedCode{4, 2, 2}, Message: "Mailbox full"}, 0, 15 * time.Minute},
		{&smtp.SMTPError{Code: 452, EnhancedCode: smtp.NoEnhancedCode, Message: "Insufficient system storage"},
			15 * time.Minute, 15 * time.Minute},
		{&smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "No such user"}, 0, 0},
		{nil, 0, 0},
	} {
		addr := startReplying(t, row.reply)
		for _, client := range []struct {
			name string
			send func(addr string) error
			want time.Duration
		}{
			{"net/smtp", sendByNetSMTP, row.want},
			{"go-smtp", sendByGoSMTP, row.goes},
			{"go-mail", sendByGoMail, row.want},
			//nolint:errorlint // the text is meant
			{"go-mail, its error as text",
				func(addr string) error { return fmt.Errorf("deferred: %v", sendByGoMail(addr)) }, row.want},
		} {
			err := client.send(addr)
			if err == nil {
				t.Errorf("%v, %s: the mail was sent", row.reply, client.name)
			}
			if got := smtpWait(err); got != client.want {
				t.Errorf("%v, %s: got %v of %q, want %v", row.reply, client.name, got, err, client.want)
			}
		}
	}
}

// replying is a session of a server that gives each recipient the same answer.
type replying struct {
	conn  *smtp.Conn
	reply *smtp.SMTPError
}

func (s replying) Mail(string, *smtp.MailOptions) error { return nil }
func (s replying) Reset()                               {}
func (s replying) Logout() error                        { return nil }
func (s replying) Rcpt(string, *smtp.RcptOptions) error {
	if s.reply == nil {
		return nil
	}
	return s.reply
}

// Data is called if recipients are accepted. It breaks the connection.
func (s replying) Data(io.Reader) error { return s.conn.Conn().Close() }

// startReplying starts a server on loopback and returns its address.
func startReplying(t *testing.T, reply *smtp.SMTPError) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return replying{c, reply}, nil }))
	server.Domain = "mx.example"
	server.ErrorLog = quietLog{}
	go func() { _ = server.Serve(listener) }() // returns on Close
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

// quietLog drops the server's messages about connections that break.
type quietLog struct{}

func (quietLog) Printf(string, ...any) {}
func (quietLog) Println(...any)        {}

const (
	mailFrom = "a@acme.example"
	mailTo   = "b@web.example"
	mailText = "Subject: 421\r\n\r\n452 bytes\r\n"
)

func sendByNetSMTP(addr string) error {
	return netsmtp.SendMail(addr, nil, mailFrom, []string{mailTo}, []byte(mailText))
}

func sendByGoSMTP(addr string) error {
	client, err := smtp.Dial(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.SendMail(mailFrom, []string{mailTo}, strings.NewReader(mailText))
}

func sendByGoMail(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	client, err := gomail.NewClient(host, gomail.WithPort(number), gomail.WithTLSPolicy(gomail.NoTLS),
		gomail.WithHELO("client.example"))
	if err != nil {
		return err
	}
	message := gomail.NewMsg()
	if err := errors.Join(message.From(mailFrom), message.To(mailTo)); err != nil {
		return err
	}
	message.SetBodyString(gomail.TypeTextPlain, "452 bytes")
	return client.DialAndSend(message)
}

// smtpWait returns the wait in err, and 0 if it contains none.
func smtpWait(err error) time.Duration {
	wait, _ := upstream.SMTPWait(err)
	return wait
}
