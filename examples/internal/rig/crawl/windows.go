package crawl

import (
	"cmp"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// What is counted, as it is printed.
const (
	unitRequests  = "requests"
	unitKilobytes = "KB"
)

// Event is a request, as it is counted.
type Event struct {
	check.Event
	rules bool // it is a request for a robots.txt
}

// plain returns the events as they are checked.
func plain(events []Event) []check.Event {
	all := make([]check.Event, len(events))
	for i, e := range events {
		all[i] = e.Event
	}
	return all
}

// CheckLimits adds up the windows of limits, which are longer by the margin of their scope.
func CheckLimits(events []Event, scopes []throttle.Scope, shorter time.Duration) []check.Use {
	return check.Limits(plain(events), check.Law{Scopes: scopes}, shorter)
}

// checkDelays adds up the windows of the hosts' Crawl-delays. Each holds from the request for
// its host's robots.txt on.
func checkDelays(events []Event, delays map[string]time.Duration, margin, shorter time.Duration) []check.Use {
	var uses []check.Use
	for host, delay := range delays {
		var after []Event
		for _, e := range InOrder(events) {
			switch {
			case e.Of.Key(ScopeHost) == host && e.rules:
				after = nil
			case e.Of.Key(ScopeHost) == host:
				after = append(after, e)
			}
		}
		use := CheckLimits(after,
			[]throttle.Scope{{Name: ScopeHost, Limits: []throttle.Limit{throttle.Per(1, delay)}, Margin: margin}}, shorter)[0]
		use.Key = host // also if there was no request
		uses = append(uses, use)
	}
	slices.SortFunc(uses, func(a, b check.Use) int { return cmp.Compare(a.Key, b.Key) })
	return uses
}

// InOrder returns the events by their instants.
func InOrder(events []Event) []Event {
	return slices.SortedStableFunc(slices.Values(events), func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// inBytes converts limits in kilobytes to limits for events in bytes.
func inBytes(scopes []throttle.Scope) []throttle.Scope {
	scaled := make([]throttle.Scope, len(scopes))
	for i, scope := range scopes {
		scaled[i].Name, scaled[i].Margin = scope.Name, scope.Margin
		for _, limit := range scope.Limits {
			if limit.Units != throttle.Unlimited {
				limit.Units *= fetch.Kilobyte
			}
			scaled[i].Limits = append(scaled[i].Limits, limit)
		}
	}
	return scaled
}

// checkWindows compares the limits with the record and with the grants.
func (s *Summary) checkWindows(r Result) {
	late, margin := r.Spread(), rig.MarginOf(r.Requests)
	s.GrantToRequest = report.DelayOf(late, margin)
	record, granted := r.Recorded(func(site.Access) int64 { return 1 }), r.Granted(func(Visit) int64 { return 1 })
	s.add(unitRequests, 1,
		append(CheckLimits(record, r.Requests, late), checkDelays(record, r.delays, margin, late)...),
		append(CheckLimits(granted, r.Requests, 0), checkDelays(granted, r.delays, margin, 0)...))

	bytes := r.Recorded(func(a site.Access) int64 { return a.Bytes })
	s.add(unitKilobytes, fetch.Kilobyte,
		CheckLimits(bytes, inBytes(r.kilobytes), late),
		CheckLimits(r.Granted(func(v Visit) int64 { return v.settled }), r.kilobytes, 0))
}

// Spread returns how much closer together two requests may come to a host than they were granted. Jobs are named by
// URL.
func (r Result) Spread() time.Duration {
	return account.Spread(account.Pairs(r.Visits, r.Accesses,
		func(v Visit) (string, time.Time) { return v.url, v.Start },
		func(a site.Access) (string, time.Time) { return a.URL, a.At }))
}

// Recorded returns the record as events.
func (r Result) Recorded(units func(site.Access) int64) []Event {
	known := make(map[string]Keys)
	for _, v := range r.Visits {
		known[v.url] = v.Keys
	}
	events := make([]Event, 0, len(r.Accesses))
	for _, a := range r.Accesses {
		of, ours := known[a.URL]
		if !ours {
			of = Keys{Host: a.Host}
		}
		events = append(events, Event{check.Event{At: a.At.UnixMicro(), Units: units(a), Of: of}, a.Rules})
	}
	return events
}

// Granted returns the grants as events.
func (r Result) Granted(units func(Visit) int64) []Event {
	events := make([]Event, 0, len(r.Visits))
	for _, v := range r.Visits {
		events = append(events, Event{check.Event{At: v.Start.UnixMicro(), Units: units(v), Of: v.Keys}, v.rules})
	}
	return events
}

// add takes the uses of some limits into the summary. per is how many units of the record make one unit of the limits.
func (s *Summary) add(unit string, per int64, record, granted []check.Use) {
	rows, over := report.Uses(unit, per, record, granted)
	s.Limits, s.WindowsOver = append(s.Limits, rows...), s.WindowsOver+over
}
