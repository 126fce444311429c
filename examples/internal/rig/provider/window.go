package provider

import "time"

// window is what has been served of a model within the last time of some length: from an
// instant, excluded, to now, included.
type window struct {
	length time.Duration
	served []*charge // by arrival; those that have left are dropped
}

// charge is what one request counts.
type charge struct {
	at     time.Time // its arrival
	tokens int64     // as many as it may take; when it has been answered, as many as it took
}

// used is how much is in the window that ends now.
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

// wait is after what time a request of so many tokens has room under limits, if no other
// comes and nothing is corrected: 0 if it has room now, a whole window if it never has.
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

// reset is after what time nothing of what is served now is in the window.
func (w *window) reset(now time.Time) time.Duration {
	if w.used(now).Requests == 0 {
		return 0
	}
	return w.length - now.Sub(w.served[len(w.served)-1].at)
}
