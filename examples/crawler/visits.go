package main

import (
	"net/url"
	"slices"
	"sync"
	"time"
)

// keys is what a request is counted under in each scope.
type keys struct{ host, site, ip, customer string }

// of is the key in a scope; empty for the scope without keys.
func (k keys) of(scope string) string {
	switch scope {
	case scopeHost:
		return k.host
	case scopeSite:
		return k.site
	case scopeIP:
		return k.ip
	case scopeCustomer:
		return k.customer
	}
	return ""
}

// visit is one request that the throttle let start, on Redis' clock.
type visit struct {
	url              string
	keys             keys
	start            time.Time // that was granted
	charged, settled int64     // kilobytes
	rules            bool      // it is a robots.txt
}

func visitOf(u *url.URL, headers map[string]string, rules bool, start time.Time, charged, settled int64) visit {
	return visit{
		url: u.String(), rules: rules, start: start, charged: charged, settled: settled,
		keys: keys{host: headers[headerHost], site: headers[headerSite], ip: headers[headerIP], customer: headers[headerCustomer]},
	}
}

// visits is all requests of a run. It is safe for concurrent use.
type visits struct {
	mu   sync.Mutex
	list []visit
}

func (v *visits) add(one visit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, one)
}

// all returns a copy of the visits so far, the earliest first.
func (v *visits) all() []visit {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.SortedFunc(slices.Values(v.list), func(a, b visit) int { return a.start.Compare(b.start) })
}

// settledSince adds up the kilobytes of the requests after an instant.
func (v *visits) settledSince(instant time.Time) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	var kb int64
	for _, one := range v.list {
		if one.start.After(instant) {
			kb += one.settled
		}
	}
	return kb
}

// delays returns the longest time from a granted start to its access, and the
// shortest. An access belongs to the latest start of its URL before it; with none
// before it (the clocks differ), to the first. Both are 0 without accesses.
func delays(visited []visit, accesses []access) (longest, shortest time.Duration) {
	starts := make(map[string][]time.Time)
	for _, v := range visited {
		starts[v.url] = append(starts[v.url], v.start)
	}
	first := true
	for _, a := range accesses {
		of := starts[a.url]
		if len(of) == 0 {
			continue
		}
		began := of[0]
		for _, later := range of[1:] {
			if !later.After(a.at) {
				began = later
			}
		}
		delay := a.at.Sub(began)
		if first {
			longest, shortest, first = delay, delay, false
		}
		longest, shortest = max(longest, delay), min(shortest, delay)
	}
	return longest, shortest
}
