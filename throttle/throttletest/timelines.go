package throttletest

import (
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
	{name: "F58 a light job fills the hole before a heavy one and does not delay it", scopes: global(per10s(10)), rows: []row{
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
		{at: 9 * second, call: "usage", job: "global", want: "2 used, 0 booked, free 20s"},
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
	{name: "F36 a job that never returns stops counting after its grace", scopes: global(per10s(1)), grace: 5 * second, rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "gone", want: "booked 10s, global 1/10s"},
		{at: 12 * second, call: "peek", job: "b", want: "booked 20s, global 1/10s"},
		{at: 15 * second, call: "peek", job: "b", want: "booked 20s, global 1/10s"},
		{at: 15*second + micro, call: "usage", job: "global", want: "0 used, 0 booked, free 15.000001s"},
		{at: 15*second + micro, job: "b", want: "granted 15.000001s"},
		{at: 16 * second, job: "gone", want: "booked 25.000001s, global 1/10s"},
	}},
	{name: "max wait grants a start in the near future", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 9500 * milli, job: "b", wait: 499 * milli, want: "booked 10s, global 1/10s"},
		{at: 9500 * milli, call: "cancel", job: "b", want: "true"},
		{at: 9500 * milli, job: "c", wait: 500 * milli, want: "granted 10s, global 1/10s"},
		{at: 9500 * milli, job: "d", wait: 15 * second, want: "granted 20s, global 1/10s"},
		{at: 9500 * milli, job: "e", wait: 15 * second, want: "booked 30s, global 1/10s"},
	}},
	{name: "F27 the window's edge", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 10*second - micro, call: "peek", job: "b", want: "booked 10s, global 1/10s"},
		{at: 10 * second, job: "b", want: "granted 10s"},
		{at: 20*second - micro, call: "usage", job: "global", want: "1 used, 0 booked, free 20s"},
		{at: 20 * second, call: "usage", job: "global", want: "0 used, 0 booked, free 20s"},
	}},
	{name: "sub-windows err on the strict side", scopes: global(throttle.Limit{Units: 2, Window: 10 * second, Precision: second}), rows: []row{
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
		{at: 1 * second, job: "b2", keys: "tenant=b", deadline: 5 * second, want: "too late, 20s, tenant b 1/10s"},
		{at: 1 * second, call: "usage", job: "tenant b", want: "0 used, 1 booked, free 20s"},
	}},
	{name: "an optional scope holds for those who name it", scopes: tenantAndDomain(10, 1, 20), rows: []row{
		{at: 0, job: "1", keys: "tenant=a domain=x", want: "granted 0s"},
		{at: 1 * second, job: "2", keys: "tenant=a domain=x", want: "booked 10s, domain x 1/10s"},
		{at: 1 * second, job: "3", keys: "tenant=a domain=y", want: "granted 1s"},
		{at: 1 * second, job: "4", keys: "tenant=a", want: "granted 1s"},
		{at: 1 * second, job: "5", keys: "tenant=a", want: "granted 1s"},
	}},
	{name: "F48 unlimited holds nothing back", scopes: global(throttle.Per(throttle.Unlimited, second), per10s(5)), rows: []row{
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
	{name: "a grant is given back before its start, by its own nonce", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", nonce: "n", want: "granted 0s"},
		{at: 0, call: "cancel", job: "a", nonce: "n", want: "false"}, // it has started
		{at: 9 * second, job: "b", wait: second, nonce: "mine", want: "granted 10s, global 1/10s"},
		{at: 9 * second, call: "cancel", job: "b", nonce: "other", want: "false"},
		{at: 9 * second, call: "usage", job: "global", want: "2 used, 0 booked, free 20s"},
		{at: 9 * second, call: "cancel", job: "b", nonce: "mine", want: "true"},
		{at: 9 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 10s"},
	}},
	{name: "a grant that is released is kept as a booking", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 9 * second, job: "b", wait: second, nonce: "mine", want: "granted 10s, global 1/10s"},
		{at: 9 * second, call: "release", job: "b", nonce: "other", want: "false"},
		{at: 9 * second, call: "release", job: "b", nonce: "mine", want: "true"},
		{at: 9 * second, call: "usage", job: "global", want: "1 used, 1 booked, free 20s"},
		{at: 9 * second, call: "release", job: "b", want: "true"}, // a booking is kept
		{at: 9 * second, job: "c", want: "booked 20s, global 1/10s"},
		{at: 10 * second, job: "b", nonce: "later", want: "granted 10s"},
		{at: 10 * second, call: "release", job: "b", nonce: "later", want: "false"}, // it has started
		{at: 10 * second, call: "release", job: "unknown", want: "false"},
	}},
	{name: "F1 the same nonce is answered again and charged once", scopes: global(per10s(3)), rows: []row{
		{at: 0, job: "a", weight: 2, nonce: "n", want: "granted 0s"},
		{at: 500 * milli, job: "a", weight: 2, nonce: "n", want: "granted 0s again"},
		{at: 500 * milli, call: "usage", job: "global", want: "2 used, 0 booked, free 500ms"},
		// A second later the start is no longer the one that was charged: it moves.
		{at: 2 * second, job: "a", weight: 2, nonce: "n", want: "granted 2s"},
		{at: 2 * second, call: "usage", job: "global", want: "2 used, 0 booked, free 2s"},
		{at: 11 * second, call: "usage", job: "global", want: "2 used, 0 booked, free 11s"},
		// Another attempt of the job has a nonce of its own and is charged.
		{at: 11 * second, job: "a", weight: 2, nonce: "m", want: "booked 12s, global 3/10s"},
	}},
	{name: "F38 a deadline before the slot is told and books nothing", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", deadline: 1, want: "granted 0s"},
		{at: 1 * second, job: "b", deadline: 10*second - micro, want: "too late, 10s, global 1/10s"},
		{at: 1 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 10s"},
		{at: 1 * second, job: "b", deadline: 10 * second, want: "booked 10s, global 1/10s"},
	}},
	{name: "peek changes nothing", scopes: global(per10s(1)), rows: []row{
		{at: 0, call: "peek", job: "a", want: "granted 0s"},
		{at: 0, call: "peek", job: "b", want: "granted 0s"},
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, call: "peek", job: "b", want: "booked 10s, global 1/10s"},
		{at: 1 * second, call: "peek", job: "b", wait: 9 * second, want: "granted 10s, global 1/10s"},
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
	{name: "F23 a clock that steps back a little stands still", scopes: global(per10s(2)), rows: []row{
		{at: 100 * second, job: "a", want: "granted 1m40s"},
		{at: 80 * second, job: "b", want: "granted 1m40s"},
		{at: 85 * second, job: "c", want: "booked 1m50s, global 2/10s"},
		{at: 110 * second, job: "c", want: "granted 1m50s"},
	}},
	{name: "F23 a clock that steps back far is believed", scopes: global(per10s(2)), rows: []row{
		{at: 1000 * second, job: "a", weight: 2, want: "granted 16m40s"},
		{at: 400 * second, job: "b", weight: 2, want: "granted 6m40s"},
		{at: 401 * second, job: "c", want: "booked 6m50s, global 2/10s"},
		// What was charged ahead of the clock still counts there.
		{at: 995 * second, job: "d", want: "booked 16m50s, global 2/10s"},
	}},
	{name: "F24 a clock that steps forward forgets", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "booked 10s, global 1/10s"},
		{at: 3601 * second, job: "b", want: "granted 1h0m1s"},
		{at: 3601 * second, job: "c", want: "booked 1h0m11s, global 1/10s"},
	}},
}
