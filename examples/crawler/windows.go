package main

import "time"

// What is counted, as it is printed.
const (
	unitRequests  = "requests"
	unitKilobytes = "KB"
)

// checkWindows compares the limits with the record and with the grants.
func (s *summary) checkWindows(r result) {
	late := r.spread()
	s.GrantToRequestS = late.Seconds()
	record, granted := r.recorded(func(access) int64 { return 1 }), r.granted(func(visit) int64 { return 1 })
	s.add(unitRequests, 1,
		append(checkLimits(record, r.options.requests, late), checkDelays(record, r.delays, late)...),
		append(checkLimits(granted, r.options.requests, 0), checkDelays(granted, r.delays, 0)...))

	bytes := r.recorded(func(a access) int64 { return a.bytes })
	s.add(unitKilobytes, kilobyte,
		checkLimits(bytes, inBytes(r.options.kilobytes), late),
		checkLimits(r.granted(func(v visit) int64 { return v.settled }), r.options.kilobytes, 0))
}

// spread is how much closer together two requests may come to a host than they
// were granted: the difference of the longest and the shortest time in between.
func (r result) spread() time.Duration {
	longest, shortest := delays(r.visits, r.accesses)
	return longest - min(0, shortest) // a shortest one below zero means that the clocks differ a little
}

// recorded is the record as events.
func (r result) recorded(units func(access) int64) []event {
	known := make(map[string]keys)
	for _, v := range r.visits {
		known[v.url] = v.keys
	}
	events := make([]event, 0, len(r.accesses))
	for _, a := range r.accesses {
		of, ours := known[a.url]
		if !ours {
			of = keys{host: a.host}
		}
		events = append(events, event{at: a.at.UnixMicro(), units: units(a), keys: of, rules: a.rules})
	}
	return events
}

// granted is the grants as events.
func (r result) granted(units func(visit) int64) []event {
	events := make([]event, 0, len(r.visits))
	for _, v := range r.visits {
		events = append(events, event{at: v.start.UnixMicro(), units: units(v), keys: v.keys, rules: v.rules})
	}
	return events
}

// add takes the uses of some limits into the summary. The record counts in a unit
// of which so many make one of the limits'.
func (s *summary) add(unit string, per int64, record, granted []use) {
	for i := range record {
		limit := granted[i].limit
		s.Limits = append(s.Limits, limitUse{
			Unit: unit, Scope: granted[i].scope, Limit: limit.String(), Record: record[i].summary(per), Grants: granted[i].summary(1),
		})
	}
	s.WindowsOver += windowsOver(record) + windowsOver(granted)
}

func (u use) summary(per int64) windowUse {
	return windowUse{WindowS: u.window.Seconds(), Key: u.key, Units: (u.worst + per - 1) / per, Over: u.over}
}
