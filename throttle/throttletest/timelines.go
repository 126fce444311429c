package throttletest

import (
	"fmt"
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
	{name: "a grant that was over stays forgotten when the clock steps back", scopes: global(throttle.Limit{Units: 1, Window: 60 * second, Precision: 60 * second}), rows: []row{
		{at: 0, job: "a", nonce: "n", want: "granted 0s"},
		{at: 60*second + micro, job: "a", nonce: "n", deadline: 1 * second, want: "too late, 2m0s, global 1/1m@1m"},
		{at: 40 * second, job: "a", nonce: "n", deadline: 1 * second, want: "too late, 2m0s, global 1/1m@1m"},
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
	{name: "what has no room within the lookahead stands in line and starts in order", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 0, job: "a2", keys: "tenant=a", want: "granted 0s"},
		{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, call: "pull", job: "a|", want: "nothing"},
		{at: 1 * second, job: "a4", keys: "tenant=a", want: "waiting, 1 ahead"},
		{at: 1 * second, job: "a5", keys: "tenant=a", want: "waiting, 2 ahead"},
		{at: 1 * second, call: "lines", want: "a 3 jobs of 3, 0 booked, share 1"},
		{at: 9*second - micro, call: "sweep", want: "nothing"},
		{at: 9 * second, call: "sweep", want: "nothing; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a3 10s, a4 10s"},
		{at: 9 * second, call: "lines", want: "a 1 jobs of 1, 2 booked, share 1"},
		{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s; next a|"},
		{at: 10 * second, job: "a4", keys: "tenant=a", want: "granted 10s; next a|"},
		{at: 19 * second, call: "sweep", want: "nothing; next a|"},
		{at: 19 * second, call: "pull", job: "a|", want: "booked a5 20s"},
		{at: 19 * second, call: "lines", want: ""},
		{at: 20 * second, job: "a5", keys: "tenant=a", want: "granted 20s"},
	}},
	{name: "nobody passes those in line where there is room again", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, call: "peek", job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
		{at: 1 * second, call: "peek", job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
		// Nobody has swept meanwhile. The newcomer comes behind, and tells whom to pull.
		{at: 10 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead; next a|"},
		{at: 10 * second, call: "pull", job: "a|", want: "booked a2 10s, a3 10s"},
		{at: 10 * second, job: "a2", keys: "tenant=a", want: "granted 10s"},
		{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s"},
	}},
	{name: "tenants in line take turns, whoever came first", scopes: tenantAndDomain(100, 100, 4), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 4, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead; next a|"},
		{at: 1 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead; next a|"},
		{at: 2 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead; next a|"},
		{at: 2 * second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead; next a|"},
		{at: 2 * second, job: "b3", keys: "tenant=b", want: "waiting, 2 ahead; next a|"},
		{at: 9 * second, call: "pull", job: "b|", want: "nothing; next a|"}, // it is not its turn
		{at: 9 * second, call: "pull", job: "a|", want: "booked a2 10s; next b|"},
		{at: 9 * second, call: "pull", job: "b|", want: "booked b1 10s; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a3 10s; next b|"},
		{at: 9 * second, call: "pull", job: "b|", want: "booked b2 10s; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "nothing"}, // no room
		{at: 9 * second, call: "lines", want: "a 1 jobs of 1, 2 booked, share 1; b 1 jobs of 1, 2 booked, share 1"},
	}},
	{name: "a share of 2 takes two turns for one", scopes: tenantAndDomain(100, 100, 6), lookahead: second, shares: map[string]int{"b": 2}, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 6, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead; next a|"},
		{at: 1 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead; next a|"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead; next a|"},
		{at: 1 * second, job: "b3", keys: "tenant=b", want: "waiting, 2 ahead; next a|"},
		{at: 1 * second, job: "b4", keys: "tenant=b", want: "waiting, 3 ahead; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a2 10s; next b|"},
		{at: 9 * second, call: "pull", job: "b|", want: "booked b1 10s, b2 10s; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a3 10s; next b|"},
		{at: 9 * second, call: "pull", job: "b|", want: "booked b3 10s, b4 10s; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "nothing"},
		{at: 9 * second, call: "lines", want: "a 1 jobs of 1, 2 booked, share 1"},
	}},
	{name: "who comes late to the line has no claim on what was before", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead; next a|"},
		{at: 1 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead; next a|"},
		{at: 1 * second, job: "a5", keys: "tenant=a", want: "waiting, 3 ahead; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a2 10s, a3 10s"},
		{at: 9 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
		{at: 9 * second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead"},
		{at: 10 * second, job: "a2", keys: "tenant=a", want: "granted 10s; next b|"},
		{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s; next b|"},
		{at: 19 * second, call: "sweep", want: "nothing; next b|"},
		{at: 19 * second, call: "pull", job: "b|", want: "booked b1 20s; next a|"},
		{at: 19 * second, call: "pull", job: "a|", want: "booked a4 20s; next b|"},
		{at: 19 * second, call: "pull", job: "b|", want: "nothing"},
	}},
	{name: "without a fair scope there is one line, first come, first served", scopes: global(per10s(2)), lookahead: second, rows: []row{
		{at: 0, job: "a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "b", want: "waiting, 0 ahead; next |"},
		{at: 1 * second, job: "c", want: "waiting, 1 ahead; next |"},
		{at: 1 * second, call: "lines", want: " 2 jobs of 2, 0 booked, share 1"},
		{at: 9 * second, call: "pull", job: "|", want: "booked b 10s, c 10s"},
	}},
	{name: "a lane whose domain is full is set aside, others go on", scopes: tenantAndDomain(100, 1, 100), lookahead: second, rows: []row{
		{at: 0, job: "x1", keys: "tenant=a domain=x", want: "granted 0s"},
		{at: 1 * second, job: "x2", keys: "tenant=a domain=x", want: "waiting, 0 ahead; next a|domain=x"},
		{at: 1 * second, call: "pull", job: "a|domain=x", want: "nothing"},
		{at: 2 * second, job: "y1", keys: "tenant=a domain=y", want: "granted 2s"},
		{at: 2 * second, job: "y2", keys: "tenant=a domain=y", want: "waiting, 0 ahead; next a|domain=y"},
		{at: 2 * second, call: "pull", job: "a|domain=y", want: "nothing"},
		{at: 2 * second, job: "p1", keys: "tenant=a", want: "granted 2s"},
		{at: 3 * second, call: "pull", job: "a|domain=x", want: "nothing"}, // set aside, it stays so
		{at: 9*second - micro, call: "sweep", want: "nothing"},
		{at: 9 * second, call: "sweep", want: "nothing; next a|domain=x"},
		{at: 9 * second, call: "pull", job: "a|domain=x", want: "booked x2 10s"},
		{at: 10 * second, job: "x2", keys: "tenant=a domain=x", want: "granted 10s"},
		{at: 11 * second, call: "sweep", want: "nothing; next a|domain=y"},
		{at: 11 * second, call: "pull", job: "a|domain=y", want: "booked y2 12s"},
		{at: 11 * second, call: "lines", want: ""},
	}},
	{name: "a tenant over its own limit does not hold the others up", scopes: tenantAndDomain(1, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, call: "pull", job: "a|", want: "nothing"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "granted 1s"},
		{at: 2 * second, job: "b2", keys: "tenant=b", want: "waiting, 0 ahead; next b|"},
		{at: 2 * second, call: "pull", job: "b|", want: "nothing"},
		{at: 9 * second, call: "sweep", want: "nothing; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a2 10s"},
		{at: 10 * second, call: "sweep", want: "nothing; next b|"},
		{at: 10 * second, call: "pull", job: "b|", want: "booked b2 11s"},
	}},
	{name: "the lane with the oldest head is its tenant's front", scopes: tenantAndDomain(100, 100, 3), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 3, want: "granted 0s"},
		{at: 1 * second, job: "y1", keys: "tenant=a domain=y", want: "waiting, 0 ahead; next a|domain=y"},
		{at: 2 * second, job: "x1", keys: "tenant=a domain=x", want: "waiting, 0 ahead; next a|domain=y"},
		{at: 3 * second, job: "y2", keys: "tenant=a domain=y", want: "waiting, 1 ahead; next a|domain=y"},
		{at: 9 * second, call: "pull", job: "a|domain=y", want: "booked y1 10s; next a|domain=x"},
		{at: 9 * second, call: "pull", job: "a|domain=x", want: "booked x1 10s; next a|domain=y"},
		{at: 9 * second, call: "pull", job: "a|domain=y", want: "booked y2 10s"},
	}},
	{name: "a job that comes again keeps its place", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 2 * second, job: "a3", keys: "tenant=a", weight: 2, want: "waiting, 1 ahead; next a|"},
		{at: 3 * second, job: "a4", keys: "tenant=a", want: "waiting, 3 ahead; next a|"},
		{at: 4 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 4 * second, job: "a4", keys: "tenant=a", want: "waiting, 2 ahead; next a|"}, // two of mean weight 4/3
		{at: 4 * second, call: "lines", want: "a 3 jobs of 4, 0 booked, share 1"},
		{at: 4 * second, job: "a2", keys: "tenant=a", deadline: 9 * second, want: "too late, 10s, global 2/10s"},
		{at: 4 * second, call: "lines", want: "a 2 jobs of 3, 0 booked, share 1"},
	}},
	{name: "a job in line that is cancelled leaves it", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead; next a|"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead; next a|"},
		{at: 2 * second, call: "release", job: "a2", keys: "tenant=a", want: "false"}, // there is no grant
		{at: 2 * second, call: "cancel", job: "a2", keys: "tenant=a", want: "true"},
		{at: 2 * second, call: "cancel", job: "a2", keys: "tenant=a", want: "false"},
		{at: 2 * second, call: "cancel", job: "b1", keys: "tenant=b", want: "true"},
		{at: 2 * second, call: "lines", want: "a 1 jobs of 1, 0 booked, share 1"},
		{at: 9 * second, call: "sweep", want: "nothing; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a3 10s"},
		{at: 9 * second, call: "sweep", want: "nothing"},
	}},
	{name: "a cancelled booking is for those in line", scopes: tenantAndDomain(100, 100, 1), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
		{at: 9500 * milli, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead; next b|"},
		{at: 9500 * milli, call: "pull", job: "b|", want: "nothing"},
		{at: 9500 * milli, call: "sweep", want: "nothing"},
		{at: 9600 * milli, call: "cancel", job: "a2", keys: "tenant=a", want: "true"},
		{at: 9600 * milli, call: "sweep", want: "nothing; next b|"},
		{at: 9600 * milli, call: "pull", job: "b|", want: "booked b1 10s"},
	}},
	{name: "a cancelled turn is not held against its tenant", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead; next a|"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a2 10s; next b|"},
		{at: 9 * second, call: "cancel", job: "a2", keys: "tenant=a", want: "true"},
		{at: 9 * second, call: "sweep", want: "nothing; next a|"},
		{at: 9 * second, call: "pull", job: "a|", want: "booked a3 10s; next b|"},
		{at: 9 * second, call: "pull", job: "b|", want: "booked b1 10s"},
	}},
	{name: "a booking that nobody came for is found, ever less often, then forgotten", scopes: tenantAndDomain(100, 100, 1), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
		{at: 9500 * milli, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead; next b|"},
		{at: 9500 * milli, call: "pull", job: "b|", want: "nothing"},
		{at: 10500*milli - micro, call: "sweep", want: "nothing"},
		{at: 10500 * milli, call: "sweep", want: "overdue a2 10s; next b|"},
		{at: 11500*milli - micro, call: "sweep", want: "nothing; next b|"},
		{at: 11500 * milli, call: "sweep", want: "overdue a2 10s; next b|"},
		{at: 15*second + micro, call: "sweep", want: "overdue a2 10s; next b|"}, // its grace is over
		{at: 15*second + micro, call: "pull", job: "b|", want: "booked b1 15.000001s"},
		{at: 15*second + micro, job: "b1", keys: "tenant=b", want: "granted 15.000001s"},
		{at: 110 * second, call: "sweep", want: "overdue a2 10s"},
		{at: 160*second - micro, call: "sweep", want: "nothing"}, // the more it is overdue, the less often
		{at: 160 * second, call: "sweep", want: "overdue a2 10s"},
		{at: 610 * second, call: "sweep", want: "overdue a2 10s"},
		{at: 1610 * second, call: "sweep", want: "nothing"},
	}},
	{name: "a booking that nobody looked for in time is told once before it is forgotten", scopes: tenantAndDomain(100, 100, 1), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
		{at: 3600 * second, call: "sweep", want: "overdue a2 10s"},
		{at: 7200 * second, call: "sweep", want: "nothing"},
	}},
	{name: "a late job that lost its slot is the first of its lane", scopes: tenantAndDomain(100, 100, 1), lookahead: second, grace: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, global 1/10s"},
		{at: 9500 * milli, job: "a3", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 9500 * milli, job: "a4", keys: "tenant=a", want: "waiting, 1 ahead; next a|"},
		{at: 9500 * milli, call: "pull", job: "a|", want: "nothing"},
		{at: 12 * second, call: "sweep", want: "overdue a2 10s; next a|"},
		{at: 12 * second, call: "pull", job: "a|", want: "booked a3 12s"},
		{at: 12 * second, job: "a3", keys: "tenant=a", want: "granted 12s"},
		{at: 13 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead; next a|"},
		{at: 13 * second, job: "a4", keys: "tenant=a", want: "waiting, 1 ahead; next a|"},
		{at: 21 * second, call: "sweep", want: "nothing; next a|"},
		{at: 21 * second, call: "pull", job: "a|", want: "booked a2 22s"},
	}},
	{name: "F58 a heavy job is booked beyond the lookahead where light ones would starve it", scopes: tenantAndDomain(100, 100, 10), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 5, want: "granted 0s"},
		{at: 1 * second, job: "heavy", keys: "tenant=a", weight: 9, want: "waiting, 0 ahead; next a|"},
		{at: 1 * second, call: "pull", job: "a|", want: "booked heavy 10s"},
		{at: 2 * second, job: "b1", keys: "tenant=b", want: "granted 2s"},
		{at: 2 * second, job: "b2", keys: "tenant=b", want: "waiting, 0 ahead; next b|"},
		{at: 10 * second, job: "heavy", keys: "tenant=a", weight: 9, want: "granted 10s; next b|"},
		{at: 11 * second, call: "pull", job: "b|", want: "booked b2 12s"},
	}},
	{name: "one pull books 32 jobs", scopes: global(throttle.Per(40, 10*second)), lookahead: second, rows: append(append([]row{
		{at: 0, job: "a", weight: 40, want: "granted 0s"},
	}, inLine(33)...), []row{
		{at: 10 * second, call: "pull", job: "|", want: "booked j0 10s, j1 10s, j2 10s, j3 10s, j4 10s, j5 10s, j6 10s, j7 10s, j8 10s, j9 10s, j10 10s, j11 10s, j12 10s, j13 10s, j14 10s, j15 10s, j16 10s, j17 10s, j18 10s, j19 10s, j20 10s, j21 10s, j22 10s, j23 10s, j24 10s, j25 10s, j26 10s, j27 10s, j28 10s, j29 10s, j30 10s, j31 10s; next |"},
		{at: 10 * second, call: "pull", job: "|", want: "booked j32 10s"},
	}...)},
}

// inLine are jobs that come at 1 s and find no room.
func inLine(jobs int) []row {
	rows := make([]row, jobs)
	for i := range rows {
		rows[i] = row{at: second, job: fmt.Sprintf("j%d", i), want: fmt.Sprintf("waiting, %d ahead; next |", i)}
	}
	return rows
}
