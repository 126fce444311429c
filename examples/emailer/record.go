package main

import (
	"slices"
	"sync"
	"time"
)

// Replies of an SMTP server that a receipt keeps, besides its 4xx and 5xx.
const (
	replyAccepted = 250
	replyNone     = 0 // the connection ended before the server had the last word
)

// receipt is one attempt at a mail as the server saw it.
type receipt struct {
	at         time.Time // when the server accepted the message, or refused its recipients
	mail       string    // the mail's id
	recipients int       // how many were asked for: the units it used
	reply      int       // 250, or the reply code that refused it
	closed     bool      // it was refused since the whole domain takes nothing now
}

// accepted tells whether the server took responsibility for the mail.
func (r receipt) accepted() bool { return r.reply == replyAccepted }

// record is everything that a server received, in the order it came. It is
// safe for concurrent use.
type record struct {
	mu       sync.Mutex
	receipts []receipt
}

func (r *record) add(one receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.receipts = append(r.receipts, one)
}

// all returns a copy of the receipts so far.
func (r *record) all() []receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.receipts)
}
