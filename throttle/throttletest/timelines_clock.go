package throttletest

import "time"

// clockTimelines are about a clock that does not go on evenly.
var clockTimelines = []timeline{
	{name: "F23 a clock that steps back a little stands still", scopes: global(per10s(2)), rows: []row{
		{at: 100 * second, job: "a", want: "granted 1m40s"},
		{at: 80 * second, job: "b", want: "granted 1m20s"},
		{at: 85 * second, job: "c", want: "booked 1m50s, global 2/10s"},
		{at: 110 * second, job: "c", want: "granted 1m50s"},
	}},
	{name: "while time stands still nothing is granted for later: it would go on too soon after another step",
		scopes: global(per10s(1)), rows: []row{
			{at: 95 * second, job: "a", want: "granted 1m35s"},
			{at: 100 * second, job: "b", want: "booked 1m45s, global 1/10s"},
			{at: 98 * second, job: "b", wait: 10 * second, want: "booked 1m45s, global 1/10s"},
			{at: 100 * second, job: "b", wait: 10 * second, want: "granted 1m45s"}, // it has caught up
		}},
	{name: "nothing is granted a window ahead: another could start a window before it, and the clock step back",
		scopes: global(per10s(1)), rows: []row{
			{at: 0, job: "a", want: "granted 0s"},
			{at: 0, job: "b", wait: time.Minute, want: "booked 10s, global 1/10s"},
			{at: 1 * time.Microsecond, job: "b", wait: time.Minute, want: "granted 10s"},
		}},
	{name: "F23 a clock that steps back far goes on from where it stood", scopes: global(per10s(2)), rows: []row{
		{at: 1000 * second, job: "a", weight: 2, want: "granted 16m40s"},
		{at: 400 * second, job: "b", weight: 2, want: "booked 6m50s, global 2/10s"},
		{at: 401 * second, job: "c", want: "booked 7m0s, global 2/10s"},
		// What was charged ahead of the clock still counts there.
		{at: 995 * second, job: "d", want: "granted 16m35s"},
	}},
	{name: "a clock that steps two hours back goes on from where it stood", scopes: global(per10s(2)), rows: []row{
		{at: 3 * time.Hour, job: "a", weight: 2, want: "granted 3h0m0s"},
		{at: 1 * time.Hour, job: "b", want: "booked 1h0m10s, global 2/10s"},
		{at: 1*time.Hour + 5*second, job: "c", want: "booked 1h0m10s, global 2/10s"},
		{at: 1*time.Hour + 10*second, job: "b", want: "granted 1h0m10s"},
		{at: 1*time.Hour + 10*second, job: "c", want: "granted 1h0m10s"},
		{at: 1*time.Hour + 11*second, job: "d", want: "booked 1h0m20s, global 2/10s"},
		{at: 3*time.Hour + 1*second, job: "d", want: "granted 3h0m1s"},
	}},
	{name: "a line goes on after the clock has stepped two hours back", scopes: tenantAndDomain(100, 100, 1),
		lookahead: second, rows: []row{
			{at: 3 * time.Hour, job: "a1", keys: "tenant=a", want: "granted 3h0m0s"},
			{at: 3 * time.Hour, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * time.Hour, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 1*time.Hour + 10*second, call: "pull", want: "booked a2 1h0m10s"},
			{at: 1*time.Hour + 10*second, job: "b2", keys: "tenant=b", want: "waiting, 1 ahead"},
			{at: 1*time.Hour + 10*second, job: "a2", keys: "tenant=a", want: "granted 1h0m10s"},
			{at: 1*time.Hour + 20*second, call: "pull", want: "booked b1 1h0m20s"},
		}},
	{name: "a clock that steps two hours forward and back", scopes: global(per10s(2)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 2 * time.Hour, job: "b", want: "granted 2h0m0s"},
		{at: 2 * time.Hour, job: "c", want: "granted 2h0m0s"},
		{at: 1 * second, job: "d", want: "booked 11s, global 2/10s"},
		{at: 10 * second, call: "usage", job: "global", want: "2 used, 1 booked, free 11s"},
		{at: 11 * second, job: "d", want: "granted 11s"},
	}},
	{name: "F24 a clock that steps forward forgets", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "booked 10s, global 1/10s"},
		{at: 3601 * second, job: "b", want: "granted 1h0m1s"},
		{at: 3601 * second, job: "c", want: "booked 1h0m11s, global 1/10s"},
	}},
}
