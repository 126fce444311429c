package smtp

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
)

// Replies of an SMTP server that a receipt keeps, besides its 4xx and 5xx.
const (
	ReplyAccepted = 250
	ReplyNone     = 0 // the connection ended before the server had the last word
)

// Receipt is one attempt at a mail as the server saw it.
type Receipt struct {
	Began      time.Time // when the mail was begun
	At         time.Time // when the server accepted the message, or refused its recipients
	Mail       string    // the mail's id
	Recipients int       // how many were asked for: the units it used
	Reply      int       // 250, or the reply code that refused it
	Closed     bool      // it was refused since the whole domain takes nothing now
}

// Accepted reports whether the server took responsibility for the mail.
func (r Receipt) Accepted() bool { return r.Reply == ReplyAccepted }

// Record is everything that a server received, in the order it came.
type Record = account.List[Receipt]
