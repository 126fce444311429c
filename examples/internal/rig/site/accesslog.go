package site

import (
	"net/http"
	"net/url"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// Access is one request as a server saw it, or as the client saw it if the servers keep no log for us.
type Access struct {
	At, End time.Time // when it came, and when it was answered
	// Held is the earliest time at which the request may have ended: when the server began to send the last bytes that
	// the client has surely received.
	Held   time.Time
	Addr   string // the host's address
	Host   string
	URL    string
	Status int
	Bytes  int64     // bytes of the body that the server sent, or in the client's log received
	Until  time.Time // the end of the pause that the answer asked for; zero if it asked for none
	Whole  bool      // the body was sent to its end
	Rules  bool      // it is a robots.txt
}

// AccessLog has all requests of a run, in the order in which they were answered.
type AccessLog struct{ account.List[Access] }

// All returns a copy of the accesses so far, the earliest first.
func (l *AccessLog) All() []Access { return l.InOrder(func(a Access) time.Time { return a.At }) }

// SeenByClient returns an access for the log that the client keeps itself. Without an answer its status is 0.
func SeenByClient(u *url.URL, addr string, a *fetch.Answer, rules bool, sent time.Time) Access {
	one := Access{Rules: rules, At: sent, End: time.Now(), Addr: addr, Host: u.Host, URL: u.String()}
	one.Held = one.End
	if a == nil {
		return one
	}
	one.Status, one.Bytes, one.Whole = a.Status, a.Bytes, !a.Cut
	if a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable {
		if wait, told := upstream.RetryAfter(a.Header.Get("Retry-After"), one.End); told {
			one.Until = one.End.Add(wait)
		}
	}
	return one
}

// PauseViolations counts the pauses that hosts asked for, and the requests that came to a
// host during its pause.
func PauseViolations(accesses []Access) (violations, pauses int) {
	for _, asked := range accesses {
		if asked.Until.IsZero() {
			continue
		}
		pauses++
		for _, a := range accesses {
			if a.Host == asked.Host && a.At.After(asked.End) && a.At.Before(asked.Until) {
				violations++
			}
		}
	}
	return violations, pauses
}
