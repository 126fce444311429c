package crawl

import (
	"net/url"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
)

// Visit is one request that the throttle let start, on Redis' clock.
type Visit struct {
	url              string
	Keys             Keys
	Start            time.Time // the granted start
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

// visits is all requests of a run.
type visits struct{ account.List[Visit] }

// all returns a copy of the visits so far, the earliest first.
func (v *visits) all() []Visit { return v.InOrder(func(one Visit) time.Time { return one.Start }) }

// settledSince adds up the kilobytes of the requests after an instant.
func (v *visits) settledSince(instant time.Time) int64 {
	return v.Sum(func(one Visit) int64 {
		if one.Start.After(instant) {
			return one.settled
		}
		return 0
	})
}
