package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// settleTimelines are about charges that are corrected.
var settleTimelines = []timeline{
	{name: "settled for less frees at once", scopes: global(per10s(10)), rows: []row{
		{at: 0, job: "a", weight: 6, want: "granted 0s"},
		{at: 1 * second, job: "b", weight: 5, want: "booked 10s, global 10/10s"},
		{at: 1 * second, call: "settle", job: "a", actual: 2, want: "true"},
		{at: 1 * second, call: "usage", job: "global", want: "2 used, 5 booked, free 1s"},
		{at: 1 * second, job: "c", weight: 5, want: "granted 1s"},
		{at: 2 * second, job: "b", weight: 5, want: "booked 10s, global 10/10s"}, // it keeps its slot
		{at: 10 * second, job: "b", weight: 5, want: "granted 10s"},
	}},
	{name: "settled for more is a debt that later jobs wait for", scopes: global(per10s(5)), rows: []row{
		{at: 0, job: "a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "b", weight: 1, want: "granted 1s"},
		{at: 1 * second, call: "settle", job: "a", actual: 8, want: "true"},
		{at: 1 * second, call: "usage", job: "global", want: "9 used, 0 booked, free 10s"},
		{at: 2 * second, job: "c", want: "booked 10s, global 5/10s"},
		{at: 2 * second, call: "count", job: "global", from: 2 * second, want: "9"},
		{at: 10 * second, job: "c", want: "granted 10s"},
		{at: 10 * second, call: "usage", job: "global", want: "2 used, 0 booked, free 10s"},
	}},
	{name: "a debt moves no slot, and is seen at it", scopes: global(per10s(5)), rows: []row{
		{at: 0, job: "a", weight: 3, want: "granted 0s"},
		{at: 1 * second, job: "b", weight: 2, want: "granted 1s"},
		{at: 2 * second, job: "c", weight: 3, want: "booked 10s, global 5/10s"},
		{at: 2 * second, job: "d", weight: 2, want: "booked 11s, global 5/10s"},
		{at: 5 * second, call: "settle", job: "b", actual: 5, want: "true"},
		{at: 6 * second, job: "c", weight: 3, want: "booked 10s, global 5/10s"},
		{at: 6 * second, job: "d", weight: 2, want: "booked 11s, global 5/10s"},
		{at: 10 * second, job: "c", weight: 3, want: "booked 11s, global 5/10s"},
		{at: 11 * second, job: "d", weight: 2, want: "granted 11s"},
		{at: 11 * second, job: "c", weight: 3, want: "granted 11s"},
	}},
	{name: "a grant is settled once", scopes: global(per10s(5)), rows: []row{
		{at: 0, job: "a", weight: 3, want: "granted 0s"},
		{at: 1 * second, call: "settle", job: "a", actual: 1, want: "true"},
		{at: 1 * second, call: "settle", job: "a", actual: 2, want: "false"},
		{at: 1 * second, call: "refund", job: "a", want: "false"},
		{at: 1 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 1s"},
		{at: 2 * second, job: "b", weight: 3, want: "granted 2s"},
		{at: 2 * second, call: "settle", job: "b", actual: 3, want: "true"}, // what it was, and that is all
		{at: 2 * second, call: "settle", job: "b", actual: 1, want: "false"},
		{at: 2 * second, call: "usage", job: "global", want: "4 used, 0 booked, free 2s"},
	}},
	{name: "a grant that took nothing is refunded", scopes: global(per10s(5)), rows: []row{
		{at: 0, job: "a", weight: 5, want: "granted 0s"},
		{at: 1 * second, call: "refund", job: "a", want: "true"},
		{at: 1 * second, call: "usage", job: "global", want: "0 used, 0 booked, free 1s"},
		{at: 1 * second, call: "count", job: "global", from: 10 * second, want: "0"},
		{at: 1 * second, job: "b", weight: 5, want: "granted 1s"},
	}},
	{name: "each grant of a job is settled by itself", scopes: global(per10s(10)), rows: []row{
		{at: 0, job: "a", weight: 3, nonce: "first", want: "granted 0s"},
		{at: 1 * second, job: "a", weight: 3, nonce: "second", want: "granted 1s"},
		{at: 2 * second, call: "settle", job: "a", nonce: "first", actual: 1, want: "true"},
		{at: 2 * second, call: "usage", job: "global", want: "4 used, 0 booked, free 2s"},
		{at: 2 * second, call: "settle", job: "a", nonce: "second", actual: 1, want: "true"},
		{at: 2 * second, call: "usage", job: "global", want: "2 used, 0 booked, free 2s"},
		{at: 3 * second, job: "a", weight: 3, nonce: "third", want: "granted 3s"},
		{at: 3 * second, call: "refund", job: "a", nonce: "second", want: "false"},
		{at: 3 * second, call: "refund", job: "a", nonce: "third", want: "true"},
		{at: 3 * second, call: "usage", job: "global", want: "2 used, 0 booked, free 3s"},
	}},
	{name: "a job that runs for long is settled all the same, and once", scopes: global(throttle.PerHour(10)), rows: []row{
		{at: 0, job: "a", weight: 6, want: "granted 0s"},
		{at: 0, job: "b", weight: 4, want: "granted 0s"},
		{at: 5 * time.Minute, call: "settle", job: "a", actual: 1, want: "true"},
		{at: 5 * time.Minute, call: "settle", job: "a", actual: 2, want: "false"},
		{at: 5 * time.Minute, call: "usage", job: "global", want: "5 used, 0 booked, free 5m0s"},
		{at: 50 * time.Minute, call: "settle", job: "a", actual: 2, want: "false"},
		{at: 60 * time.Minute, call: "settle", job: "b", actual: 9, want: "true"}, // it has left the window
		{at: 60 * time.Minute, call: "usage", job: "global", want: "0 used, 0 booked, free 1h0m0s"},
	}},
	{name: "a charge can be corrected for an hour", scopes: global(throttle.Per(10, 2*time.Hour)), rows: []row{
		{at: 0, job: "a", weight: 3, want: "granted 0s"},
		{at: 0, job: "b", weight: 3, want: "granted 0s"},
		{at: time.Hour, call: "settle", job: "a", actual: 1, want: "true"},
		{at: time.Hour + micro, call: "settle", job: "b", actual: 1, want: "false"},
		{at: time.Hour + micro, call: "usage", job: "global", want: "4 used, 0 booked, free 1h0m0.000001s"},
	}},
	{name: "or for as long as SettleWithin says", scopes: global(throttle.Per(10, 2*time.Hour)), within: 10 * time.Minute, rows: []row{
		{at: 0, job: "a", weight: 3, want: "granted 0s"},
		{at: 0, job: "b", weight: 3, want: "granted 0s"},
		{at: 10 * time.Minute, call: "refund", job: "a", want: "true"},
		{at: 10*time.Minute + micro, call: "refund", job: "b", want: "false"},
		{at: 10*time.Minute + micro, call: "refund", job: "a", want: "false"},
		{at: 10*time.Minute + micro, call: "usage", job: "global", want: "3 used, 0 booked, free 10m0.000001s"},
	}},
	{name: "a charge is corrected in every scope and limit at once", scopes: []throttle.Scope{
		{Name: "tenant", Limits: limits(throttle.Per(5, second), throttle.PerMinute(8))},
		{Name: "domain", Limits: limits(per10s(6)), Optional: true},
		{Name: throttle.Global, Limits: limits(throttle.Limit{Units: 9, Window: 10 * second, Precision: second})},
	}, rows: []row{
		{at: 0, job: "1", keys: "tenant=a domain=x", weight: 5, want: "granted 0s"},
		{at: 500 * milli, call: "settle", job: "1", actual: 2, want: "true"},
		{at: 500 * milli, call: "usage", job: "tenant a", want: "2 used, 0 booked, free 500ms; 2 used, 0 booked, free 500ms"},
		{at: 500 * milli, call: "usage", job: "domain x", want: "2 used, 0 booked, free 500ms"},
		{at: 500 * milli, call: "usage", job: "global", want: "2 used, 0 booked, free 500ms"},
		{at: 2 * second, job: "2", keys: "tenant=a", weight: 3, want: "granted 2s"},
		{at: 2 * second, call: "settle", job: "2", actual: 7, want: "true"},
		{at: 2 * second, call: "usage", job: "tenant a", want: "7 used, 0 booked, free 3s; 9 used, 0 booked, free 1m0s"},
		{at: 2 * second, call: "usage", job: "domain x", want: "2 used, 0 booked, free 2s"},
		{at: 2 * second, call: "usage", job: "global", want: "9 used, 0 booked, free 11s"},
		{at: 2 * second, call: "usage", job: "tenant b", want: "0 used, 0 booked, free 2s; 0 used, 0 booked, free 2s"},
	}},
	{name: "in sub-windows, the newest and an older one", scopes: global(throttle.Limit{Units: 10, Window: 10 * second, Precision: second}), rows: []row{
		{at: 900 * milli, job: "a", weight: 6, want: "granted 900ms"},
		{at: 950 * milli, job: "b", weight: 4, want: "granted 950ms"},
		{at: 1 * second, call: "settle", job: "a", actual: 1, want: "true"},
		{at: 1 * second, call: "usage", job: "global", want: "5 used, 0 booked, free 1s"},
		{at: 2 * second, job: "c", weight: 2, want: "granted 2s"}, // a newer one
		{at: 3 * second, call: "settle", job: "b", actual: 7, want: "true"},
		{at: 3 * second, call: "usage", job: "global", want: "10 used, 0 booked, free 11s"},
		{at: 3 * second, call: "refund", job: "c", want: "true"},
		{at: 3 * second, call: "usage", job: "global", want: "8 used, 0 booked, free 3s"},
	}},
	{name: "the line uses what was given back", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
		{at: 1 * second, call: "pull", want: "nothing"},
		{at: 2 * second, call: "settle", job: "a1", actual: 3, want: "true"}, // more frees nothing
		{at: 2 * second, call: "pull", want: "nothing"},
		{at: 2 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
		{at: 12 * second, call: "pull", want: "booked b1 12s, a2 12s"},
		{at: 12 * second, job: "a2", keys: "tenant=a", want: "granted 12s"},
		{at: 12 * second, job: "b1", keys: "tenant=b", want: "granted 12s"},
		{at: 13 * second, job: "a3", keys: "tenant=a", want: "waiting, 0 ahead"},
		{at: 13 * second, call: "pull", want: "nothing"},
		{at: 14 * second, call: "refund", job: "a2", keys: "tenant=a", want: "true"},
		{at: 14 * second, call: "pull", want: "booked a3 14s"},
	}},
	{name: "a lane that waits for its own limit uses what was given back", scopes: tenantAndDomain(100, 1, 100), lookahead: second, rows: []row{
		{at: 0, job: "x1", keys: "tenant=a domain=x", want: "granted 0s"},
		{at: 1 * second, job: "x2", keys: "tenant=a domain=x", want: "waiting, 0 ahead"},
		{at: 1 * second, call: "pull", want: "nothing"},
		{at: 2 * second, call: "refund", job: "x1", keys: "tenant=a domain=x", want: "true"},
		{at: 2 * second, call: "pull", want: "booked x2 2s"},
	}},
	{name: "a start still ahead is settled where it will be", scopes: global(per10s(4)), rows: []row{
		{at: 0, job: "a", weight: 4, want: "granted 0s"},
		{at: 9 * second, job: "b", weight: 4, wait: second, want: "granted 10s"},
		{at: 9 * second, call: "settle", job: "b", actual: 1, want: "true"},
		{at: 9 * second, job: "c", weight: 3, want: "booked 10s, global 4/10s"},
		{at: 9 * second, call: "usage", job: "global", want: "4 used, 4 booked, free 20s"},
	}},
	{name: "a charge is corrected whatever the mode is", scopes: tenantAndDomain(5, 5, 5), rows: []row{
		{at: 0, job: "a", keys: "tenant=a", weight: 5, want: "granted 0s"},
		{at: 1 * second, call: "mode", job: "tenant", text: "off", want: "done"},
		{at: 1 * second, call: "refund", job: "a", keys: "tenant=a", want: "true"},
		{at: 1 * second, call: "usage", job: "global", want: "0 used, 0 booked, free 1s"},
		{at: 2 * second, call: "mode", job: "tenant", want: "done"},
		{at: 2 * second, call: "refund", job: "a", keys: "tenant=a", want: "false"},
		{at: 2 * second, call: "usage", job: "global", want: "0 used, 0 booked, free 2s"},
		{at: 2 * second, call: "usage", job: "tenant a", want: "0 used, 0 booked, free 2s"},
	}},
	{name: "a job takes of each scope what its costs say", scopes: tenantAndDomain(10, 3, 5), rows: []row{
		{at: 0, job: "a", keys: "tenant=a domain=x", weight: 2, costs: "tenant=7 domain=1", want: "granted 0s"},
		{at: 0, call: "usage", job: "tenant a", want: "7 used, 0 booked, free 0s"},
		{at: 0, call: "usage", job: "domain x", want: "1 used, 0 booked, free 0s"},
		{at: 0, call: "usage", job: "global", want: "2 used, 0 booked, free 0s"},
		{at: 1 * second, job: "b", keys: "tenant=a domain=x", weight: 3, costs: "tenant=1 domain=2", want: "granted 1s"},
		{at: 2 * second, job: "c", keys: "tenant=a", costs: "global=0", want: "granted 2s"}, // it does not concern all
		{at: 2 * second, job: "d", costs: "tenant=0", want: "booked 10s, global 5/10s"},     // and this no tenant
		{at: 2 * second, job: "e", keys: "tenant=a", weight: 2, costs: "global=1", want: "booked 10s, global 5/10s"},
		{at: 2 * second, job: "f", keys: "tenant=b domain=y", costs: "domain=4", want: "throttle: weight 4 can never start under the domain limit 3/10s"},
	}},
	{name: "a charge with costs is corrected by its weight, or scope by scope", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 0, job: "a", keys: "tenant=a domain=x", weight: 4, costs: "tenant=6", want: "granted 0s"},
		{at: 1 * second, call: "settle", job: "a", actual: 1, want: "true"}, // what has a cost of its own stays
		{at: 1 * second, call: "usage", job: "tenant a", want: "6 used, 0 booked, free 1s"},
		{at: 1 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 1s"},
		{at: 2 * second, job: "b", keys: "tenant=b domain=x", weight: 4, costs: "tenant=6", want: "granted 2s"},
		{at: 2 * second, call: "settle", job: "b", costs: "tenant=2 domain=9", want: "true"},
		{at: 2 * second, call: "usage", job: "tenant b", want: "2 used, 0 booked, free 2s"},
		{at: 2 * second, call: "usage", job: "domain x", want: "10 used, 0 booked, free 10s"},
		{at: 2 * second, call: "usage", job: "global", want: "5 used, 0 booked, free 2s"},
		{at: 2 * second, call: "settle", job: "b", costs: "tenant=1", want: "false"}, // once
		{at: 3 * second, job: "c", keys: "tenant=c", costs: "tenant=3", want: "granted 3s"},
		{at: 3 * second, call: "refund", job: "c", want: "true"},
		{at: 3 * second, call: "usage", job: "tenant c", want: "0 used, 0 booked, free 3s"},
	}},
	{name: "a charge is corrected under other windows", scopes: global(per10s(5)), rows: []row{
		{at: 0, job: "a", weight: 4, want: "granted 0s"},
		{at: 1 * second, call: "limits", job: "global", text: "6/1m", want: "done"},
		{at: 2 * second, call: "settle", job: "a", actual: 1, want: "true"},
		{at: 2 * second, call: "usage", job: "global", want: "0 used, 0 booked, free 2s"},
		{at: 3 * second, call: "reset", job: "global", want: "done"},
		{at: 3 * second, call: "usage", job: "global", want: "1 used, 0 booked, free 3s"},
	}},
}
