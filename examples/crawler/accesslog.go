package main

import (
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/worker"
)

// access is one request as a server saw it, or, of servers that keep no log for us,
// as the client did.
type access struct {
	at, end time.Time // when it came, and when it was answered
	host    string
	url     string
	status  int
	bytes   int64     // of the body that were sent; of the client, received
	until   time.Time // the end of the pause that the answer asked for; zero if it asked for none
	whole   bool      // the body was sent to its end
	rules   bool      // it is a robots.txt
}

// accessLog is all requests of a run, in the order they were answered. It is safe
// for concurrent use.
type accessLog struct {
	mu   sync.Mutex
	list []access
}

func (l *accessLog) add(one access) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, one)
}

// all returns a copy of the accesses so far, the earliest first.
func (l *accessLog) all() []access {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(slices.Values(l.list), func(a, b access) int { return a.at.Compare(b.at) })
}

// seenByClient is an access for the log that the client keeps itself. Without an
// answer its status is 0.
func seenByClient(u *url.URL, a *answer, rules bool, sent time.Time) access {
	one := access{rules: rules, at: sent, end: time.Now(), host: u.Host, url: u.String()}
	if a == nil {
		return one
	}
	one.status, one.bytes, one.whole = a.status, a.bytes, !a.cut
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		if wait, told := worker.RetryAfter(a.header.Get("Retry-After"), one.end); told {
			one.until = one.end.Add(wait)
		}
	}
	return one
}

// pauseViolations counts the requests that came to a host after it had asked for a
// pause and before the end of that, and the pauses.
func pauseViolations(accesses []access) (violations, pauses int) {
	for _, asked := range accesses {
		if asked.until.IsZero() {
			continue
		}
		pauses++
		for _, a := range accesses {
			if a.host == asked.host && a.at.After(asked.end) && a.at.Before(asked.until) {
				violations++
			}
		}
	}
	return violations, pauses
}
