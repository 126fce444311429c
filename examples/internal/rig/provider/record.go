package provider

import (
	"slices"
	"sync"
	"time"
)

// Request is one request as the provider saw it. If the provider keeps no record for us, it is the request as the
// client saw it.
type Request struct {
	At, End    time.Time // when it came, and when it was answered; End is zero while it is under way
	ID         string    // the ID that its client gave it
	Model      string
	Customer   string
	Prompt     int64 // tokens of the prompt
	MaxTokens  int64 // the most tokens that the completion may have
	Completion int64 // tokens of the completion that were made
	Refused    bool  // answered by 429: it counts nothing
}

// Tokens returns how many tokens the request has used.
func (r Request) Tokens() int64 {
	if r.Refused {
		return 0
	}
	return r.Prompt + r.Completion
}

// Record is all requests of a run. It is safe for concurrent use.
type Record struct {
	mu   sync.Mutex
	list []*Request
}

// Add notes a request.
func (r *Record) Add(one Request) { r.add(&one) }

func (r *Record) add(one *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, one)
}

// end notes how a request was answered.
func (r *Record) end(one *Request, at time.Time, completion int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.End, one.Completion = at, completion
}

// All returns a copy of the requests so far, the earliest first.
func (r *Record) All() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Request, 0, len(r.list))
	for _, one := range r.list {
		all = append(all, *one)
	}
	slices.SortStableFunc(all, func(a, b Request) int { return a.At.Compare(b.At) })
	return all
}
