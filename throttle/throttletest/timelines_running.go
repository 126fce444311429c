package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// runningTimelines are of limits on what runs at once. A lease of 30 s is divided into
// sub-windows of 30 ms; the instants here are edges of them.
var runningTimelines = []timeline{
	{
		name:   "a place is free when its job has ended",
		scopes: running(0, throttle.Running(2)), lookahead: time.Second,
		rows: []row{
			{at: 0, job: "a", keys: "tenant=x", want: "granted 0s for 30s"},
			{at: second, job: "b", keys: "tenant=x", want: "granted 1s for 30s"},
			{at: second, job: "other", keys: "tenant=y", want: "granted 1s for 30s"},
			{at: 2 * second, job: "c", keys: "tenant=x", want: "waiting, 0 ahead"},
			{at: 2 * second, job: "d", keys: "tenant=x", want: "waiting, 1 ahead"},
			{at: 3 * second, call: "usage", job: "tenant x", want: "2 used, 0 booked, free 30.03s"},
			{at: 3 * second, call: "pull", want: "nothing"},
			{at: 3 * second, call: "done", job: "a", want: "true"},
			{at: 3 * second, call: "done", job: "a", want: "false"},
			{at: 3 * second, call: "pull", want: "booked c 3s"},
			{at: 3 * second, job: "c", keys: "tenant=x", want: "granted 3s for 30s"},
			{at: 6 * second, call: "done", job: "b", want: "true"},
			{at: 6 * second, call: "pull", want: "booked d 6s"},
			{at: 6 * second, job: "d", keys: "tenant=x", want: "granted 6s for 30s"},
			{at: 6 * second, call: "usage", job: "tenant x", want: "2 used, 0 booked, free 33.03s"},
		},
	},
	{
		name:   "a job counts for a lease after its last sign of life",
		scopes: running(0, throttle.Running(2)), lookahead: time.Second,
		rows: []row{
			{at: 0, job: "a", keys: "tenant=x", want: "granted 0s for 30s"},
			{at: 3 * second, job: "b", keys: "tenant=x", want: "granted 3s for 30s"},
			{at: 9 * second, call: "renew", job: "b", want: "true"},
			{at: 21 * second, call: "renew", job: "b", want: "true"},
			{at: 30 * second, call: "usage", job: "tenant x", want: "2 used, 0 booked, free 30.03s"},
			{at: 30*second + 30*time.Millisecond, call: "usage", job: "tenant x", want: "1 used, 0 booked, free 30.03s"},
			{at: 31 * second, call: "renew", job: "a", want: "false"},
			{at: 31 * second, call: "done", job: "a", want: "false"},
			{at: 51 * second, call: "usage", job: "tenant x", want: "1 used, 0 booked, free 51s"},
			{at: 51 * second, call: "done", job: "b", want: "true"},
			{at: 51 * second, call: "usage", job: "tenant x", want: "0 used, 0 booked, free 51s"},
		},
	},
	{
		name:   "a place is granted to nobody before the end of a lease, which may be renewed",
		scopes: running(0, throttle.Running(1)), lookahead: time.Second,
		rows: []row{
			{at: 0, job: "a", keys: "tenant=x", want: "granted 0s for 30s"},
			{at: 29*second + 100*time.Millisecond, job: "b", keys: "tenant=x", wait: 2 * second,
				want: "booked 30.03s, tenant x 1/running"},
			{at: 29*second + 940*time.Millisecond, call: "renew", job: "a", want: "true"},
			{at: 30*second + 30*time.Millisecond, job: "b", keys: "tenant=x", wait: 2 * second, want: "waiting, 0 ahead"},
			{at: 36 * second, call: "done", job: "a", want: "true"},
			{at: 36 * second, call: "pull", want: "booked b 36s"},
			{at: 36 * second, job: "b", keys: "tenant=x", wait: 2 * second, want: "granted 36s for 30s"},
		},
	},
	{
		name:      "a start that is granted ahead has its place already",
		scopes:    running(0, throttle.Running(2), throttle.Limit{Units: 1, Window: 31 * time.Second}),
		lookahead: 3 * time.Second,
		rows: []row{
			{at: 0, job: "a", keys: "tenant=x", want: "granted 0s for 30s"},
			{at: 29*second + 100*time.Millisecond, job: "b", keys: "tenant=x", wait: 2 * second, want: "granted 31s for 30s"},
			{at: 29*second + 100*time.Millisecond, call: "limits", job: "tenant x", text: "2/running", want: "done"},
			{at: 29*second + 100*time.Millisecond, job: "c", keys: "tenant=x", wait: 2 * second,
				want: "booked 30.03s, tenant x 2/running"},
			{at: 29*second + 940*time.Millisecond, call: "renew", job: "a", want: "true"},
		},
	},
	{
		name:   "a place of a time that began anew is not renewed",
		scopes: running(0, throttle.Running(1)), lookahead: time.Second,
		rows: []row{
			{at: time.Hour, job: "a", keys: "tenant=x", want: "granted 1h0m0s for 30s"},
			{at: 0, call: "pull", want: "nothing"},
			{at: 0, job: "b", keys: "tenant=x", deadline: time.Nanosecond, want: "too late, 30.03s, tenant x 1/running"},
			{at: 40 * second, job: "b", keys: "tenant=x", want: "granted 40s for 30s"},
			{at: 41 * second, call: "renew", job: "a", want: "false"},
			{at: 41 * second, call: "renew", job: "b", want: "true"},
		},
	},
	{
		name:   "units, and windows beside them",
		scopes: running(0, throttle.Running(5), per10s(8)), lookahead: time.Second,
		rows: []row{
			{at: 0, job: "a", weight: 3, keys: "tenant=x", want: "granted 0s for 30s"},
			{at: 0, job: "b", weight: 3, keys: "tenant=x", want: "waiting, 0 ahead"},
			{at: 0, job: "c", weight: 6, keys: "tenant=x",
				want: "throttle: weight 6 can never start under the tenant limit 5/running"},
			{at: 3 * second, call: "done", job: "a", want: "true"},
			{at: 3 * second, call: "pull", want: "booked b 3s"},
			{at: 3 * second, job: "b", weight: 3, keys: "tenant=x", want: "granted 3s for 30s"},
			{at: 4 * second, job: "d", weight: 2, keys: "tenant=x", want: "granted 4s for 30s"},
			{at: 4 * second, call: "done", job: "d", want: "true"},
			{at: 5 * second, job: "e", keys: "tenant=x", want: "waiting, 0 ahead"},
			{at: 5 * second, call: "settle", job: "b", actual: 1, want: "true"},
			{at: 5 * second, call: "usage", job: "tenant x", want: "3 used, 0 booked, free 5s; 6 used, 0 booked, free 5s"},
		},
	},
	{
		name:   "a place cools down",
		scopes: running(6*second, throttle.Running(1)), lookahead: time.Second,
		rows: []row{
			{at: 0, job: "a", keys: "tenant=x", want: "granted 0s for 30s"},
			{at: 3 * second, call: "done", job: "a", want: "true"},
			{at: 3 * second, call: "usage", job: "tenant x", want: "1 used, 0 booked, free 9.03s"},
			{at: 3 * second, call: "renew", job: "a", want: "false"},
			{at: 9 * second, call: "usage", job: "tenant x", want: "1 used, 0 booked, free 9.03s"},
			{at: 9*second + 30*time.Millisecond, call: "usage", job: "tenant x", want: "0 used, 0 booked, free 9.03s"},
		},
	},
}

func running(cooldown time.Duration, limits ...throttle.Limit) []throttle.Scope {
	return []throttle.Scope{{Name: "tenant", Limits: limits, Cooldown: cooldown}}
}
