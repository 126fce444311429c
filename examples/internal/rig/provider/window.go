package provider

import "time"

// window is what a model has served in a time of fixed length that ends now. A request that arrived
// exactly that time ago no longer counts.
type window struct {
	length time.Duration
	served []*charge // by arrival; charges that have left the window are dropped
}

// charge is what one request counts.
type charge struct {
	at     time.Time // when the request arrived
	tokens int64     // how many tokens the request may take; after its answer, how many it took
}

// used returns how much is in the window that ends now.
func (w *window) used(now time.Time) Limits {
	var used Limits
	for len(w.served) > 0 && now.Sub(w.served[0].at) >= w.length {
		w.served = w.served[1:]
	}
	for _, c := range w.served {
		used.Requests++
		used.Tokens += c.tokens
	}
	return used
}

// add counts a request that arrives now.
func (w *window) add(now time.Time, tokens int64) *charge {
	c := &charge{at: now, tokens: tokens}
	w.served = append(w.served, c)
	return c
}

// wait returns how long it takes until a request of the given tokens has room under the limits, if no other request
// comes and no charge is corrected: 0 if the request has room now, a whole window if it never has.
func (w *window) wait(now time.Time, tokens int64, most Limits) time.Duration {
	if tokens > most.Tokens {
		return w.length
	}
	used := w.used(now)
	var wait time.Duration
	for _, c := range w.served {
		if used.Requests < most.Requests && used.Tokens+tokens <= most.Tokens {
			break
		}
		used.Requests--
		used.Tokens -= c.tokens
		wait = w.length - now.Sub(c.at)
	}
	return wait
}

// reset returns how long it takes until all charges that are in the window now have left it.
func (w *window) reset(now time.Time) time.Duration {
	if w.used(now).Requests == 0 {
		return 0
	}
	return w.length - now.Sub(w.served[len(w.served)-1].at)
}
