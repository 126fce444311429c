package crawl

import (
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
)

// Visit is one request that the throttle let start, on Redis' clock.
type Visit struct {
	url              string
	Keys             Keys
	Start            time.Time // that was granted
	charged, settled int64     // kilobytes
	rules            bool      // it is a robots.txt
}

func visitOf(u *url.URL, headers map[string]string, rules bool, start time.Time, charged, settled int64) Visit {
	return Visit{
		url: u.String(), rules: rules, Start: start, charged: charged, settled: settled,
		Keys: Keys{Host: headers[ScopeHost], Site: headers[ScopeSite], IP: headers[ScopeIP],
			Customer: headers[ScopeCustomer]},
	}
}

// visits is all requests of a run. It is safe for concurrent use.
type visits struct {
	mu   sync.Mutex
	list []Visit
}

// add notes a visit.
func (v *visits) add(one Visit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, one)
}

// all returns a copy of the visits so far, the earliest first.
func (v *visits) all() []Visit {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.SortedFunc(slices.Values(v.list), func(a, b Visit) int { return a.Start.Compare(b.Start) })
}

// settledSince adds up the kilobytes of the requests after an instant.
func (v *visits) settledSince(instant time.Time) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	var kb int64
	for _, one := range v.list {
		if one.Start.After(instant) {
			kb += one.settled
		}
	}
	return kb
}

// delays returns the longest time from a granted start to its access, and the
// shortest. An access belongs to the latest start of its URL before it; with none
// before it (the clocks differ), to the first. Both are 0 without accesses.
func delays(visited []Visit, accesses []site.Access) (longest, shortest time.Duration) {
	starts := make(map[string][]time.Time)
	for _, v := range visited {
		starts[v.url] = append(starts[v.url], v.Start)
	}
	first := true
	for _, a := range accesses {
		of := starts[a.URL]
		if len(of) == 0 {
			continue
		}
		began := of[0]
		for _, later := range of[1:] {
			if !later.After(a.At) {
				began = later
			}
		}
		delay := a.At.Sub(began)
		if first {
			longest, shortest, first = delay, delay, false
		}
		longest, shortest = max(longest, delay), min(shortest, delay)
	}
	return longest, shortest
}
