package throttletest

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	second = time.Second
	milli  = time.Millisecond
	micro  = time.Microsecond
)

func limits(limits ...throttle.Limit) []throttle.Limit { return limits }

func per10s(units int64) throttle.Limit { return throttle.Per(units, 10*second) }

func global(limits ...throttle.Limit) []throttle.Scope {
	return []throttle.Scope{{Name: throttle.Global, Limits: limits}}
}

// tenantAndDomain are three scopes, one of them optional.
func tenantAndDomain(tenant, domain, all int64) []throttle.Scope {
	return []throttle.Scope{
		{Name: "tenant", Limits: limits(per10s(tenant))},
		{Name: "domain", Limits: limits(per10s(domain)), Optional: true},
		{Name: throttle.Global, Limits: limits(per10s(all))},
	}
}

// timelines are the contract, a story for each behaviour.
var timelines = []timeline{
	{name: "room for all starts at once", scopes: global(per10s(3)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "granted 1s"},
		{at: 2 * second, job: "c", want: "granted 2s"},
		{at: 3 * second, job: "d", want: "booked 10s, global 3/10s"},
		{at: 3 * second, call: "usage", job: "global", want: "3 used, 1 booked, free 11s"},
	}},
	{name: "bookings are served in order", scopes: global(per10s(2)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "granted 1s"},
		{at: 2 * second, job: "c", want: "booked 10s, global 2/10s"},
		{at: 2 * second, job: "d", want: "booked 11s, global 2/10s"},
		{at: 2 * second, job: "e", want: "booked 20s, global 2/10s"},
		{at: 2 * second, job: "f", want: "booked 21s, global 2/10s"},
		{at: 10 * second, job: "c", want: "granted 10s"},
		{at: 11 * second, job: "d", want: "granted 11s"},
		{at: 12 * second, job: "e", want: "booked 20s, global 2/10s"},
		{at: 20 * second, job: "e", want: "granted 20s"},
		{at: 21 * second, job: "f", want: "granted 21s"},
	}},
	{name: "weights add up", scopes: global(per10s(10)), rows: []row{
		{at: 0, job: "a", weight: 6, want: "granted 0s"},
		{at: 1 * second, job: "b", weight: 5, want: "booked 10s, global 10/10s"},
		{at: 1 * second, job: "c", weight: 4, want: "granted 1s"},
		{at: 2 * second, job: "d", weight: 1, want: "booked 10s, global 10/10s"},
		{at: 2 * second, call: "usage", job: "global", want: "10 used, 6 booked, free 11s"},
	}},
	{name: "F46 a weight of the whole window starts alone", scopes: global(per10s(10)), rows: []row{
		{at: 0, job: "a", weight: 10, want: "granted 0s"},
		{at: 1 * second, job: "b", weight: 10, want: "booked 10s, global 10/10s"},
		{at: 1 * second, job: "c", weight: 1, want: "booked 20s, global 10/10s"},
	}},
	{name: "F58 a light job fills the hole before a heavy one and does not delay it", scopes: global(per10s(10)),
		rows: []row{
			{at: 0, job: "first", weight: 5, want: "granted 0s"},
			{at: 1 * second, job: "heavy", weight: 9, want: "booked 10s, global 10/10s"},
			{at: 2 * second, job: "light", weight: 1, want: "granted 2s"},
			{at: 3 * second, job: "more", weight: 1, want: "booked 12s, global 10/10s"},
			{at: 4 * second, job: "heavy", weight: 9, want: "booked 10s, global 10/10s"},
			{at: 10 * second, job: "heavy", weight: 9, want: "granted 10s"},
			{at: 12 * second, job: "more", weight: 1, want: "granted 12s"},
		}},
	{name: "F58 a stream of light jobs does not starve a heavy one", scopes: global(per10s(10)), rows: []row{
		{at: 0, job: "l0", weight: 4, want: "granted 0s"},
		{at: 1 * second, job: "l1", weight: 4, want: "granted 1s"},
		{at: 2 * second, job: "heavy", weight: 9, want: "booked 11s, global 10/10s"},
		{at: 2 * second, job: "l2", weight: 2, want: "booked 21s, global 10/10s"},
		{at: 3 * second, job: "l3", weight: 1, want: "granted 3s"},
		{at: 4 * second, job: "l4", weight: 1, want: "booked 13s, global 10/10s"},
		{at: 11 * second, job: "heavy", weight: 9, want: "granted 11s"},
	}},
	{name: "early asks get the same slot", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "booked 10s, global 1/10s"},
		{at: 2 * second, job: "b", want: "booked 10s, global 1/10s"},
		{at: 9 * second, job: "b", wait: 999 * milli, want: "booked 10s, global 1/10s"},
		{at: 9 * second, call: "usage", job: "global", want: "1 used, 1 booked, free 20s"},
		{at: 9 * second, job: "b", wait: 1 * second, want: "granted 10s"},
		{at: 9 * second, call: "usage", job: "global", want: "1 used, 1 booked, free 20s"},
	}},
	{name: "a late job uses capacity that is free", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "booked 10s, global 1/10s"},
		{at: 1 * second, job: "c", want: "booked 20s, global 1/10s"},
		{at: 13 * second, job: "b", want: "granted 13s"},
		// What started late leaves late: the next on time has no room and gets a new slot.
		{at: 20 * second, job: "c", want: "booked 23s, global 1/10s"},
		{at: 23 * second, job: "c", want: "granted 23s"},
	}},
	{name: "F30 a late job without room is booked anew", scopes: global(per10s(2)), rows: []row{
		{at: 0, job: "a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "b", want: "booked 10s, global 2/10s"},
		{at: 1 * second, job: "c", want: "booked 10s, global 2/10s"},
		{at: 10 * second, job: "c", want: "granted 10s"},
		{at: 16 * second, job: "d", want: "granted 16s"}, // b's grace is over
		{at: 17 * second, job: "b", want: "booked 20s, global 2/10s"},
		{at: 20 * second, job: "b", want: "granted 20s"},
	}},
	{name: "a slot moves by what its job may wait; who comes later still leaves others theirs",
		scopes: global(per10s(1)), grace: 10 * second, rows: []row{
			{at: 0, job: "a", want: "granted 0s"},
			{at: 1 * second, job: "b", want: "booked 10s, global 1/10s"},
			{at: 1 * second, job: "c", want: "booked 20s, global 1/10s"},
			{at: 1 * second, job: "d", want: "booked 30s, global 1/10s"},
			{at: 19 * second, job: "b", want: "granted 19s"},
			{at: 25 * second, call: "peek", job: "c", wait: 9 * second, want: "granted 29s"},
			{at: 25 * second, job: "c", wait: 9*second - micro, want: "booked 40s, global 1/10s"},
			{at: 30 * second, job: "d", want: "granted 30s"},
			{at: 40 * second, job: "c", want: "granted 40s"},
		}},
	{name: "F36 a job that never returns stops counting after its grace", scopes: global(per10s(1)),
		grace: 5 * second, rows: []row{
			{at: 0, job: "a", want: "granted 0s"},
			{at: 1 * second, job: "gone", want: "booked 10s, global 1/10s"},
			{at: 12 * second, call: "peek", job: "b", want: "booked 22s, global 1/10s"},
			{at: 15 * second, call: "peek", job: "b", want: "booked 25s, global 1/10s"},
			{at: 15*second + micro, call: "usage", job: "global", want: "0 used, 0 booked, free 15.000001s"},
			{at: 15*second + micro, job: "b", want: "granted 15.000001s"},
			{at: 16 * second, job: "gone", want: "booked 25.000001s, global 1/10s"},
		}},
	{name: "max wait grants a start in the near future", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 9500 * milli, job: "b", wait: 499 * milli, want: "booked 10s, global 1/10s"},
		{at: 9500 * milli, call: "cancel", job: "b", want: "true"},
		{at: 9500 * milli, job: "c", wait: 500 * milli, want: "granted 10s"},
		{at: 9500 * milli, job: "d", wait: 15 * second, want: "booked 20s, global 1/10s"}, // a window ahead
		{at: 10001 * milli, job: "d", wait: 15 * second, want: "granted 20s"},
		{at: 10001 * milli, job: "e", wait: 15 * second, want: "booked 30s, global 1/10s"},
	}},
	{name: "F27 the window's edge", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 10*second - micro, call: "peek", job: "b", want: "booked 10s, global 1/10s"},
		{at: 10 * second, job: "b", want: "granted 10s"},
		{at: 20*second - micro, call: "usage", job: "global", want: "1 used, 0 booked, free 20s"},
		{at: 20 * second, call: "usage", job: "global", want: "0 used, 0 booked, free 20s"},
	}},
	{name: "sub-windows err on the strict side",
		scopes: global(throttle.Limit{Units: 2, Window: 10 * second, Precision: second}), rows: []row{
			{at: 900 * milli, job: "a", want: "granted 900ms"},
			{at: 950 * milli, job: "b", want: "granted 950ms"},
			// Exactly it would be 10.9 s; the sub-window of 0 s leaves as a whole.
			{at: 5 * second, job: "c", want: "booked 11s, global 2/10s@1s"},
			{at: 10999 * milli, call: "peek", job: "d", want: "booked 11s, global 2/10s@1s"},
			// A job that is late by less than a sub-window stays in its own.
			{at: 11900 * milli, job: "c", want: "granted 11.9s"},
			{at: 11900 * milli, job: "d", want: "granted 11.9s"},
			{at: 12 * second, job: "e", want: "booked 22s, global 2/10s@1s"},
		}},
	{name: "large limits count in sub-windows by default", scopes: global(throttle.Per(101, 100*second)), rows: []row{
		{at: 500 * milli, job: "a", weight: 101, want: "granted 500ms"},
		{at: 1 * second, job: "b", want: "booked 1m41s, global 101/1m40s"},
	}},
	{name: "several limits hold at once", scopes: global(throttle.Per(2, second), per10s(3)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 0, job: "b", want: "granted 0s"},
		{at: 0, job: "c", want: "booked 1s, global 2/1s"},
		{at: 0, job: "d", want: "booked 10s, global 3/10s"},
		{at: 1 * second, job: "c", want: "granted 1s"},
		{at: 2 * second, call: "usage", job: "global", want: "0 used, 1 booked, free 2s; 3 used, 1 booked, free 10s"},
	}},
	{name: "several scopes hold at once", scopes: tenantAndDomain(2, 10, 3), rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "granted 1s"},
		{at: 2 * second, job: "a3", keys: "tenant=a", want: "booked 10s, tenant a 2/10s"},
		// a3 is promised: at 10 s the window holds a2, a3 and whatever starts now.
		{at: 3 * second, job: "b1", keys: "tenant=b", want: "granted 3s"},
		{at: 4 * second, job: "b2", keys: "tenant=b", want: "booked 11s, global 3/10s"},
		{at: 4 * second, call: "usage", job: "tenant a", want: "2 used, 1 booked, free 11s"},
		{at: 4 * second, call: "usage", job: "tenant b", want: "1 used, 1 booked, free 13s"},
		{at: 4 * second, call: "usage", job: "global", want: "3 used, 2 booked, free 13s"},
		{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s"},
		{at: 11 * second, job: "b2", keys: "tenant=b", want: "granted 11s"},
	}},
	{name: "all scopes are charged or none", scopes: tenantAndDomain(1, 10, 1), rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "booked 10s, global 1/10s"},
		{at: 1 * second, call: "usage", job: "tenant b", want: "0 used, 1 booked, free 20s"},
		{at: 1 * second, job: "b2", keys: "tenant=b", deadline: 5 * second, want: "too late, 20s, global 1/10s"},
		{at: 1 * second, call: "usage", job: "tenant b", want: "0 used, 1 booked, free 20s"},
	}},
	{name: "an optional scope holds for those who name it", scopes: tenantAndDomain(10, 1, 20), rows: []row{
		{at: 0, job: "1", keys: "tenant=a domain=x", want: "granted 0s"},
		{at: 1 * second, job: "2", keys: "tenant=a domain=x", want: "booked 10s, domain x 1/10s"},
		{at: 1 * second, job: "3", keys: "tenant=a domain=y", want: "granted 1s"},
		{at: 1 * second, job: "4", keys: "tenant=a", want: "granted 1s"},
		{at: 1 * second, job: "5", keys: "tenant=a", want: "granted 1s"},
	}},
	{name: "F48 unlimited holds nothing back", scopes: global(throttle.Per(throttle.Unlimited, second), per10s(5)),
		rows: []row{
			{at: 0, job: "a", weight: 5, want: "granted 0s"},
			{at: 0, job: "b", weight: 5, want: "booked 10s, global 5/10s"},
			{at: 0, call: "usage", job: "global", want: "0 used, 0 booked, free 0s; 5 used, 5 booked, free 20s"},
		}},
	{name: "F48 a limit of 0 is never free", scopes: []throttle.Scope{
		{Name: throttle.Global, Limits: limits(per10s(5))},
		{Name: "tenant", Limits: limits(per10s(0)), Optional: true},
	}, rows: []row{
		{at: 0, call: "usage", job: "tenant a", want: "0 used, 0 booked, free never"},
		{at: 0, job: "x", want: "granted 0s"},
		{at: 0, call: "usage", job: "tenant a", want: "0 used, 0 booked, free never"},
	}},
	{name: "F59 a cancelled booking is free for others and moves no promise later", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "booked 10s, global 1/10s"},
		{at: 1 * second, job: "c", want: "booked 20s, global 1/10s"},
		{at: 2 * second, call: "cancel", job: "b", want: "true"},
		{at: 2 * second, call: "cancel", job: "b", want: "false"},
		{at: 2 * second, call: "cancel", job: "unknown", want: "false"},
		{at: 2 * second, job: "c", want: "booked 20s, global 1/10s"},
		{at: 2 * second, job: "d", want: "booked 10s, global 1/10s"},
		{at: 2 * second, job: "b", want: "booked 30s, global 1/10s"},
		{at: 10 * second, job: "d", want: "granted 10s"},
		{at: 20 * second, job: "c", want: "granted 20s"},
	}},
	{name: "a grant is given back before its start", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 9 * second, job: "b", wait: second, want: "granted 10s"},
		{at: 9 * second, call: "cancel", job: "b", want: "false"}, // it has no place and no booking
		{at: 9 * second, call: "usage", job: "global", want: "1 used, 1 booked, free 20s"},
		{at: 9 * second, call: "refund", job: "b", want: "true"},
		{at: 9 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 10s"},
		{at: 9 * second, call: "release", job: "b", want: "false"}, // once
	}},
	{name: "a grant that is released is kept as a booking", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 9 * second, job: "b", wait: second, want: "granted 10s"},
		{at: 9 * second, call: "release", job: "b", want: "true"},
		{at: 9 * second, call: "usage", job: "global", want: "1 used, 1 booked, free 20s"},
		{at: 9 * second, call: "release", job: "b", want: "false"}, // it is a booking
		{at: 9 * second, call: "settle", job: "b", actual: 5, want: "false"},
		{at: 9 * second, job: "c", want: "booked 20s, global 1/10s"},
		{at: 10 * second, job: "b", want: "granted 10s"},
		{at: 10 * second, call: "release", job: "b", want: "false"}, // it has started
	}},
	{name: "a grant that was released and granted for the same start is settled once", scopes: global(per10s(5)),
		rows: []row{
			{at: 0, job: "a", weight: 5, want: "granted 0s"},
			{at: 9 * second, job: "b", weight: 5, wait: second, want: "granted 10s"},
			{at: 9 * second, call: "release", job: "b", want: "true"},
			{at: 9 * second, call: "settle", job: "b", actual: 1, want: "false"},
			{at: 9500 * milli, job: "b", weight: 5, wait: second, want: "granted 10s"},
			{at: 9500 * milli, call: "release", job: "b", want: "false"}, // a late copy
			{at: 11 * second, call: "settle", job: "b", actual: 1, want: "true"},
			{at: 11 * second, call: "settle", job: "b", actual: 0, want: "false"},
			{at: 11 * second, call: "release", job: "b", want: "false"},
			{at: 11 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 11s"},
		}},
	{name: "F38 a deadline before the slot is told and books nothing", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", deadline: 1, want: "granted 0s"},
		{at: 1 * second, job: "b", deadline: 10*second - micro, want: "too late, 10s, global 1/10s"},
		{at: 1 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 10s"},
		{at: 1 * second, job: "b", deadline: 10 * second, want: "booked 10s, global 1/10s"},
	}},
	{name: "a job whose deadline is before its slot is refused when it asks, and its slot is free",
		scopes: global(per10s(1)), rows: []row{
			{at: 0, job: "a", want: "granted 0s"},
			{at: 1 * second, job: "b", want: "booked 10s, global 1/10s"},
			{at: 2 * second, job: "b", deadline: 10 * second, want: "booked 10s, global 1/10s"},
			{at: 9 * second, job: "b", wait: 2 * second, deadline: 10*second - micro, want: "too late, 10s, global 1/10s"},
			{at: 9 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 10s"},
		}},
	{name: "a job whose slot has moved behind its deadline is not granted", scopes: global(per10s(2)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 2 * second, job: "b", want: "granted 2s"},
		{at: 2 * second, job: "c", want: "booked 10s, global 2/10s"},
		{at: 3 * second, call: "settle", job: "b", actual: 2, want: "true"},
		{at: 9 * second, job: "c", wait: 4 * second, deadline: 12*second - micro, want: "too late, 12s, global 2/10s"},
		{at: 9 * second, call: "usage", job: "global", want: "3 used, 0 booked, free 12s"},
	}},
	{name: "peek changes nothing", scopes: global(per10s(1)), rows: []row{
		{at: 0, call: "peek", job: "a", want: "granted 0s"},
		{at: 0, call: "peek", job: "b", want: "granted 0s"},
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, call: "peek", job: "b", want: "booked 10s, global 1/10s"},
		{at: 1 * second, call: "peek", job: "b", wait: 9 * second, want: "granted 10s"},
		{at: 1 * second, job: "b", want: "booked 10s, global 1/10s"},
	}},
	{name: "a count of any past interval", scopes: global(throttle.Per(100, 60*second)), rows: []row{
		{at: 1 * second, job: "a", weight: 1, want: "granted 1s"},
		{at: 10 * second, job: "b", weight: 2, want: "granted 10s"},
		{at: 30 * second, job: "c", weight: 4, want: "granted 30s"},
		{at: 40 * second, call: "count", job: "global", from: 60 * second, want: "7"},
		{at: 40 * second, call: "count", job: "global", from: 30 * second, want: "6"}, // b is just within
		{at: 40 * second, call: "count", job: "global", from: 30*second - micro, want: "4"},
		{at: 40 * second, call: "count", job: "global", from: 39 * second, to: 10 * second, want: "3"}, // c is just outside
		{at: 40 * second, call: "count", job: "global", from: 39 * second, to: 10*second - micro, want: "7"},
		{at: 40 * second, call: "count", job: "global", from: 5 * second, to: 5 * second, want: "0"},
	}},
}

// lineTimelines are about who waits behind the lookahead.
var lineTimelines = []timeline{
	{name: "what has no room within the lookahead stands in line and starts in order",
		scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 0, job: "a2", keys: "tenant=a", want: "granted 0s"},
			{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, call: "pull", want: "nothing"},
			{at: 1 * second, job: "a4", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 1 * second, job: "a5", keys: "tenant=a", want: "waiting, 2 ahead"},
			{at: 1 * second, call: "lines", want: "global 1"},
			{at: 9*second - micro, call: "pull", want: "nothing"},
			{at: 9 * second, call: "pull", want: "booked a3 10s, a4 10s"},
			{at: 9 * second, call: "lines", want: "global 1"},
			{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s"},
			{at: 10 * second, job: "a4", keys: "tenant=a", want: "granted 10s"},
			{at: 19 * second, call: "pull", want: "booked a5 20s"},
			{at: 19 * second, call: "lines", want: ""},
			{at: 20 * second, job: "a5", keys: "tenant=a", want: "granted 20s"},
		}},
	{name: "nobody passes those in line where there is room again", scopes: tenantAndDomain(100, 100, 2),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, call: "peek", job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 1 * second, call: "peek", job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			// Nobody has pulled meanwhile. The newcomer comes behind.
			{at: 10 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 10 * second, call: "pull", want: "booked a2 10s, a3 10s"},
			{at: 10 * second, job: "a2", keys: "tenant=a", want: "granted 10s"},
			{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s"},
		}},
	{name: "tenants in line take turns, whoever came first", scopes: tenantAndDomain(100, 100, 4),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 4, want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 1 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead"},
			{at: 2 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 2 * second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead"},
			{at: 2 * second, job: "b3", keys: "tenant=b", want: "waiting, 2 ahead"},
			{at: 9 * second, call: "pull", want: "booked a2 10s, b1 10s, a3 10s, b2 10s"},
			{at: 9 * second, call: "lines", want: "global 2"},
		}},
	{name: "a share of 2 takes two turns for one", scopes: tenantAndDomain(100, 100, 6), lookahead: second,
		shares: map[string]int{"b": 2}, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 6, want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 1 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead"},
			{at: 1 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead"},
			{at: 1 * second, job: "b3", keys: "tenant=b", want: "waiting, 2 ahead"},
			{at: 1 * second, job: "b4", keys: "tenant=b", want: "waiting, 3 ahead"},
			{at: 9 * second, call: "pull", want: "booked a2 10s, b1 10s, b2 10s, a3 10s, b3 10s, b4 10s"},
			{at: 9 * second, call: "lines", want: "global 1"},
		}},
	{name: "who comes late to the line has no claim on what was before", scopes: tenantAndDomain(100, 100, 2),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 1 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead"},
			{at: 1 * second, job: "a5", keys: "tenant=a", want: "waiting, 3 ahead"},
			{at: 9 * second, call: "pull", want: "booked a2 10s, a3 10s"},
			{at: 9 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 9 * second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead"},
			{at: 10 * second, job: "a2", keys: "tenant=a", want: "granted 10s"},
			{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s"},
			{at: 19 * second, call: "pull", want: "booked b1 20s, a4 20s"},
		}},
	{name: "without a fair scope there is one line, first come, first served", scopes: global(per10s(2)),
		lookahead: second, rows: []row{
			{at: 0, job: "a", weight: 2, want: "granted 0s"},
			{at: 1 * second, job: "b", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "c", want: "waiting, 1 ahead"},
			{at: 1 * second, call: "lines", want: "global 1"},
			{at: 9 * second, call: "pull", want: "booked b 10s, c 10s"},
		}},
	{name: "a lane whose domain is full waits for it alone, others go on", scopes: tenantAndDomain(100, 1, 100),
		lookahead: second, rows: []row{
			{at: 0, job: "x1", keys: "tenant=a domain=x", want: "granted 0s"},
			{at: 1 * second, job: "x2", keys: "tenant=a domain=x", want: "waiting, 0 ahead"},
			{at: 1 * second, call: "pull", want: "nothing"},
			{at: 2 * second, job: "y1", keys: "tenant=a domain=y", want: "granted 2s"},
			{at: 2 * second, job: "y2", keys: "tenant=a domain=y", want: "waiting, 0 ahead"},
			{at: 2 * second, call: "pull", want: "nothing"},
			{at: 2 * second, job: "p1", keys: "tenant=a", want: "granted 2s"},
			{at: 3 * second, call: "pull", want: "nothing"},
			{at: 9*second - micro, call: "pull", want: "nothing"},
			{at: 9 * second, call: "pull", want: "booked x2 10s"},
			{at: 10 * second, job: "x2", keys: "tenant=a domain=x", want: "granted 10s"},
			{at: 11 * second, call: "pull", want: "booked y2 12s"},
			{at: 11 * second, call: "lines", want: ""},
		}},
	{name: "a tenant over its own limit does not hold the others up", scopes: tenantAndDomain(1, 100, 2),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, call: "pull", want: "nothing"},
			{at: 1 * second, job: "b1", keys: "tenant=b", want: "granted 1s"},
			{at: 2 * second, job: "b2", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 2 * second, call: "pull", want: "nothing"},
			{at: 9 * second, call: "pull", want: "booked a2 10s"},
			{at: 10 * second, call: "pull", want: "booked b2 11s"},
		}},
	{name: "the lane with the oldest head is its tenant's front", scopes: tenantAndDomain(100, 100, 3),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 3, want: "granted 0s"},
			{at: 1 * second, job: "y1", keys: "tenant=a domain=y", want: "waiting, 0 ahead"},
			{at: 2 * second, job: "x1", keys: "tenant=a domain=x", want: "waiting, 0 ahead"},
			{at: 3 * second, job: "y2", keys: "tenant=a domain=y", want: "waiting, 1 ahead"},
			{at: 9 * second, call: "pull", want: "booked y1 10s, x1 10s, y2 10s"},
		}},
	{name: "a job that comes again keeps its place", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
		{at: 2 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
		{at: 3 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead"},
		{at: 4 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead"},
		{at: 4 * second, job: "a2", keys: "tenant=a", want: "waiting, 2 ahead"}, // at most
		{at: 9 * second, call: "pull", want: "booked a2 10s, a3 10s"},
		{at: 10 * second, job: "a2", keys: "tenant=a", want: "granted 10s"},
		{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s"},
		{at: 19 * second, call: "pull", want: "booked a4 20s"},
		{at: 19 * second, call: "lines", want: ""},
	}},
	{name: "a job in line that is cancelled leaves it", scopes: tenantAndDomain(100, 100, 2), lookahead: second,
		rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 1 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 2 * second, call: "cancel", job: "a2", keys: "tenant=a", want: "true"},
			{at: 2 * second, call: "cancel", job: "a2", keys: "tenant=a", want: "false"},
			{at: 2 * second, call: "cancel", job: "b1", keys: "tenant=b", want: "true"},
			{at: 9 * second, call: "pull", want: "booked a3 10s"},
			{at: 9 * second, call: "lines", want: ""},
		}},
	{name: "a cancelled booking is for those in line", scopes: tenantAndDomain(100, 100, 1), lookahead: second,
		rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
			{at: 9500 * milli, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 9500 * milli, call: "pull", want: "nothing"},
			{at: 9600 * milli, call: "cancel", job: "a2", keys: "tenant=a", want: "true"},
			{at: 9600 * milli, call: "pull", want: "booked b1 10s"},
		}},
	{name: "a cancelled turn is not held against its tenant", scopes: tenantAndDomain(100, 100, 2),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 1 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead"},
			{at: 9 * second, call: "pull", want: "booked a2 10s, b1 10s"},
			{at: 9 * second, call: "cancel", job: "a2", keys: "tenant=a", want: "true"},
			{at: 9 * second, call: "pull", want: "booked a3 10s"},
		}},
	{name: "a booking that nobody came for is told, now and again, and its job finds its place for ten minutes",
		scopes: tenantAndDomain(100, 100, 1), lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
			{at: 9500 * milli, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 14999 * milli, call: "pull", want: "nothing"},
			{at: 15*second + micro, call: "pull", want: "overdue a2 10s"},
			{at: 15*second + micro, call: "pull", want: "booked b1 15.000001s"}, // the room that it leaves
			{at: 15*second + micro, job: "b1", keys: "tenant=b", want: "granted 15.000001s"},
			{at: 16 * second, job: "a3", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 17 * second, call: "pull", want: "overdue a2 9.5s"}, // told again, by its arrival
			{at: 600 * second, call: "pull", want: "booked a3 10m0s; overdue a2 9.5s"},
			{at: 600 * second, job: "a3", keys: "tenant=a", want: "granted 10m0s"},
			{at: 601 * second, job: "a4", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 602 * second, job: "a2", keys: "tenant=a", want: "waiting, 1 ahead"}, // to the front
			{at: 609 * second, call: "pull", want: "booked a2 10m10s"},
		}},
	{name: "a job that comes long after its slot is a new one", scopes: tenantAndDomain(100, 100, 1),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
			{at: 16 * second, call: "pull", want: "overdue a2 10s"},
			{at: 617 * second, call: "pull", want: "nothing"}, // forgotten
			{at: 617 * second, job: "a3", keys: "tenant=a", want: "granted 10m17s"},
			{at: 618 * second, job: "a4", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 619 * second, job: "a2", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 626 * second, call: "pull", want: "booked a4 10m27s"},
		}},
	{name: "a booking that nobody looked for in time is told once before it is forgotten",
		scopes: tenantAndDomain(100, 100, 1), lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
			{at: 3600 * second, call: "pull", want: "overdue a2 10s"},
			{at: 7200 * second, call: "pull", want: "nothing"},
		}},
	{name: "a late job that lost its slot is the first of its lane", scopes: tenantAndDomain(100, 100, 1),
		lookahead: second, grace: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
			{at: 9500 * milli, job: "a3", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 9500 * milli, job: "a4", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 9500 * milli, call: "pull", want: "nothing"},
			{at: 12 * second, call: "pull", want: "overdue a2 10s"},
			{at: 12 * second, call: "pull", want: "booked a3 12s"},
			{at: 12 * second, job: "a3", keys: "tenant=a", want: "granted 12s"},
			{at: 13 * second, job: "a2", keys: "tenant=a", want: "waiting, 1 ahead"}, // before a4
			{at: 21 * second, call: "pull", want: "booked a2 22s"},
			{at: 22 * second, job: "a2", keys: "tenant=a", want: "granted 22s"},
			{at: 31 * second, call: "pull", want: "booked a4 32s"},
		}},
	{name: "F58 a heavy job in line claims its place, light ones do not starve it",
		scopes: tenantAndDomain(100, 100, 10), lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 5, want: "granted 0s"},
			{at: 1 * second, job: "heavy", keys: "tenant=a", weight: 9, want: "waiting, 0 ahead"},
			{at: 1 * second, call: "pull", want: "nothing"},
			{at: 1 * second, call: "usage", job: "global", want: "5 used, 9 booked, free 1s"},
			{at: 1 * second, call: "lines", want: ""},
			{at: 2 * second, job: "b1", keys: "tenant=b", want: "granted 2s"},
			{at: 2 * second, job: "b2", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 9 * second, call: "pull", want: "booked heavy 10s"},
			{at: 10 * second, job: "heavy", keys: "tenant=a", weight: 9, want: "granted 10s"},
			{at: 11 * second, call: "pull", want: "booked b2 12s"},
		}},
	{name: "heavy jobs claim their places one after the other", scopes: tenantAndDomain(100, 100, 10),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 5, want: "granted 0s"},
			{at: 1 * second, job: "b1", keys: "tenant=b", weight: 9, want: "waiting, 0 ahead"},
			{at: 2 * second, job: "c1", keys: "tenant=c", weight: 9, want: "waiting, 0 ahead"},
			{at: 2 * second, call: "pull", want: "nothing"},
			{at: 2 * second, call: "lines", want: "global 1"},
			{at: 2 * second, call: "usage", job: "global", want: "5 used, 9 booked, free 2s"},
			{at: 3 * second, job: "d1", keys: "tenant=d", want: "granted 3s"},
			{at: 9 * second, call: "pull", want: "booked b1 10s"},
			{at: 10 * second, job: "b1", keys: "tenant=b", weight: 9, want: "granted 10s"},
			{at: 10 * second, call: "pull", want: "nothing"},
			{at: 11 * second, call: "pull", want: "nothing"},
			{at: 11 * second, call: "lines", want: "global 1"},
			{at: 19 * second, call: "pull", want: "booked c1 20s"},
			{at: 20 * second, job: "c1", keys: "tenant=c", weight: 9, want: "granted 20s"},
		}},
	{name: "a heavy job that leaves gives its claim back", scopes: tenantAndDomain(100, 100, 10), lookahead: second,
		rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 5, want: "granted 0s"},
			{at: 1 * second, job: "heavy", keys: "tenant=a", weight: 9, want: "waiting, 0 ahead"},
			{at: 1 * second, call: "pull", want: "nothing"},
			{at: 2 * second, call: "leave", job: "heavy nobody", want: "true false"},
			{at: 2 * second, call: "pull", want: "nothing"},
			{at: 9 * second, call: "pull", want: "nothing"},
			{at: 9 * second, call: "usage", job: "global", want: "5 used, 0 booked, free 9s"},
			{at: 9 * second, call: "lines", want: ""},
		}},
	{name: "a raised limit lets a heavy job start before its claim", scopes: tenantAndDomain(100, 100, 10),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 5, want: "granted 0s"},
			{at: 1 * second, job: "heavy", keys: "tenant=a", weight: 9, want: "waiting, 0 ahead"},
			{at: 1 * second, call: "pull", want: "nothing"},
			{at: 2 * second, call: "limits", job: "global", text: "20/10s", want: "done"},
			{at: 2 * second, call: "pull", want: "booked heavy 2s"},
		}},
	{name: "jobs leave in bulk, what they had is free", scopes: tenantAndDomain(100, 100, 2), lookahead: second,
		rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
			{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 2/10s"},
			{at: 9500 * milli, job: "a3", keys: "tenant=a", want: "booked 10s, global 2/10s"},
			{at: 9500 * milli, job: "a4", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 9500 * milli, job: "a5", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: 9600 * milli, call: "leave", job: "a1 a2 a4 nobody", want: "false true true false"},
			{at: 9600 * milli, call: "pull", want: "booked a5 10s"},
			{at: 9600 * milli, call: "lines", want: ""},
		}},
	{name: "a lane takes of each scope what its jobs cost there", scopes: tenantAndDomain(100, 3, 100),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a domain=x", weight: 20, costs: "domain=3", want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a domain=x", weight: 20, costs: "domain=1", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "a3", keys: "tenant=a domain=x", weight: 20, costs: "domain=2", want: "waiting, 1 ahead"},
			// the domain does not concern it
			{at: 1 * second, job: "a4", keys: "tenant=a domain=x", weight: 20, costs: "domain=0", want: "granted 1s"},
			{at: 1 * second, call: "lines", want: "domain x 1"},
			{at: 9 * second, call: "pull", want: "booked a2 10s, a3 10s"},
			{at: 9 * second, call: "usage", job: "domain x", want: "3 used, 3 booked, free 20s"},
			{at: 9 * second, call: "usage", job: "global", want: "40 used, 40 booked, free 9s"},
		}},
	{name: "one pull books 50 jobs", scopes: global(throttle.Per(60, 10*second)), lookahead: second,
		rows: append(append([]row{
			{at: 0, job: "a", weight: 60, want: "granted 0s"},
		}, inLine(51)...), []row{
			{at: 10 * second, call: "pull", want: bookedAll(50, 10*second)},
			{at: 10 * second, call: "pull", want: "booked j50 10s"},
		}...)},
}

// inLine are jobs that come at 1 s and find no room.
func inLine(jobs int) []row {
	rows := make([]row, jobs)
	for i := range rows {
		rows[i] = row{at: second, job: fmt.Sprintf("j%d", i), want: fmt.Sprintf("waiting, %d ahead", i)}
	}
	return rows
}

// bookedAll is what a pull tells that books the first of them.
func bookedAll(jobs int, at time.Duration) string {
	texts := make([]string, jobs)
	for i := range texts {
		texts[i] = fmt.Sprintf("j%d %s", i, at)
	}
	return "booked " + strings.Join(texts, ", ")
}
