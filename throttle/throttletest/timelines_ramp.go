package throttletest

import "github.com/asynq-throttle/asynq-throttle/throttle"

// warm is a ramp that begins an hour after the beginning of a timeline.
const warm = "ramp 2 5 20/day+9h from 2027-01-15 @UTC"

// rampTimelines are of quotas whose units grow.
var rampTimelines = []timeline{
	{name: "nothing starts before a ramp, and each step has more units", scopes: global(limitOf(warm)), rows: []row{
		{at: 0, job: "a", want: "booked 1h0m0s, global 2/day+9h@UTC"},
		{at: 0, call: "usage", job: "global", want: "0 used, 1 booked, free 1h0m0s"},
		{at: 0, job: "b", deadline: hour - micro, want: "too late, 1h0m0s, global 2/day+9h@UTC"},
		{at: hour, job: "a", want: "granted 1h0m0s"},
		{at: hour, job: "b", want: "granted 1h0m0s"},
		{at: hour, job: "c", want: "booked 25h0m0s, global 2/day+9h@UTC"},
		{at: hour, job: "d", weight: 4, want: "booked 25h0m0s, global 2/day+9h@UTC"},
		{at: 25*hour - micro, job: "e", want: "booked 49h0m0s, global 2/day+9h@UTC"},
		{at: 25 * hour, job: "c", want: "granted 25h0m0s"},
		{at: 25 * hour, job: "d", weight: 4, want: "granted 25h0m0s"},
		{at: 25 * hour, job: "f", weight: 19, want: "booked 49h0m0s, global 5/day+9h@UTC"},
		{at: 25 * hour, call: "usage", job: "global", want: "5 used, 20 booked, free 73h0m0s"},
		// Within their grace, e and f count in the period that has begun since. The last step holds.
		{at: 73 * hour, job: "g", weight: 20, want: "booked 97h0m0s, global 20/day+9h@UTC"},
		{at: 74 * hour, job: "h", weight: 20, want: "granted 74h0m0s"},
		{at: 97 * hour, job: "g", weight: 20, want: "granted 97h0m0s"},
	}},
	{name: "a heavy job waits for the step that takes it, and never fits the last", scopes: global(limitOf(warm)),
		rows: []row{
			{at: hour, job: "a", weight: 6, want: "booked 49h0m0s, global 2/day+9h@UTC"},
			{at: hour, job: "b", weight: 2, want: "granted 1h0m0s"},
			{at: hour, job: "c", weight: 5, want: "booked 25h0m0s, global 2/day+9h@UTC"},
			{at: hour, job: "d", weight: 15, want: "booked 73h0m0s, global 2/day+9h@UTC"},
			{at: hour, job: "e", weight: 14, want: "booked 49h0m0s, global 2/day+9h@UTC"},
			{at: hour, job: "f", weight: 21, want: "throttle: weight 21 can never start under the global limit " +
				warm},
		}},
	{name: "a line goes on at an edge with the units of its step", scopes: tenantAndDomain(100, 100, 100),
		lookahead: second, rows: []row{
			{at: 0, call: "limits", job: "global", text: warm, want: "done"},
			{at: 0, job: "a1", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: second, job: "a2", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: second, job: "a3", keys: "tenant=a", want: "waiting, 2 ahead"},
			{at: second, job: "b1", keys: "tenant=b", weight: 4, want: "waiting, 0 ahead"},
			{at: second, call: "pull", want: "nothing"},
			{at: hour - second, call: "pull", want: "booked a1 1h0m0s, a2 1h0m0s"},
			{at: hour, job: "a1", keys: "tenant=a", want: "granted 1h0m0s"},
			{at: hour, job: "a2", keys: "tenant=a", want: "granted 1h0m0s"},
			{at: 25*hour - second, call: "pull", want: "booked b1 25h0m0s, a3 25h0m0s"},
		}},
	{name: "heavy jobs claim half of the step in force", scopes: tenantAndDomain(100, 100, 100), lookahead: second,
		rows: []row{
			{at: 0, call: "limits", job: "global", text: "ramp 4 8 40/day+9h from 2027-01-15 @UTC", want: "done"},
			{at: hour, job: "a1", keys: "tenant=a", weight: 3, want: "granted 1h0m0s"},
			{at: hour, job: "a2", keys: "tenant=a", weight: 3, want: "waiting, 0 ahead"},
			{at: hour, job: "b1", keys: "tenant=b", weight: 3, want: "waiting, 0 ahead"},
			{at: hour, call: "pull", want: "nothing"},
			{at: hour, call: "usage", job: "global", want: "3 used, 3 booked, free 1h0m0s"}, // a2 has a claim, b1 has none
			{at: hour, call: "lines", want: "global 1"},
		}},
	{name: "a step has room for a job of all its units, whatever waits for its turn elsewhere",
		scopes: tenantAndDomain(100, 100, 100), lookahead: second, rows: []row{
			{at: 0, call: "limits", job: "global", text: warm, want: "done"},
			{at: hour, call: "pause", job: "global", until: hour + 10*second, want: "until 1h0m10s"},
			{at: hour, job: "a1", keys: "tenant=a domain=x", want: "waiting, 0 ahead"},
			{at: hour, job: "c1", keys: "tenant=c", weight: 2, want: "waiting, 0 ahead"},
			{at: hour, call: "pause", job: "domain x", until: hour + 10900*milli, want: "until 1h0m10.9s"},
			{at: hour, job: "b1", keys: "tenant=b domain=x", want: "waiting, 0 ahead"},
			{at: hour, call: "lines", want: "domain x 1; global 2"},
			// a1 moves to its domain, where b1 has its turn first.
			{at: hour + 9950*milli, call: "pull", want: "booked c1 1h0m10s"},
		}},
	{name: "held, a ramp keeps its step, and continued it goes on from there", scopes: global(limitOf(warm)),
		rows: []row{
			{at: hour, job: "a", weight: 2, want: "granted 1h0m0s"},
			{at: hour, call: "limits", job: "global", text: "ramp 2 5 20/day+9h from 2027-01-15 held 2027-01-15 @UTC",
				want: "done"},
			{at: hour, job: "b", want: "booked 25h0m0s, global 2/day+9h@UTC"}, // the count of the period goes on
			{at: 25 * hour, job: "b", want: "granted 25h0m0s"},
			{at: 25 * hour, job: "c", weight: 2, want: "booked 49h0m0s, global 2/day+9h@UTC"},
			{at: 25 * hour, job: "d", weight: 5, want: "waiting, 0 ahead"},
			{at: 49 * hour, call: "usage", job: "global", want: "0 used, 2 booked, free 73h0m0s"},
			// Continued two days later: the second day of the ramp is the one after that.
			{at: 49 * hour, call: "limits", job: "global", text: "ramp 2 5 20/day+9h from 2027-01-17 @UTC", want: "done"},
			{at: 49 * hour, job: "c", weight: 2, want: "granted 49h0m0s"},
			{at: 49 * hour, call: "pull", want: "booked d 73h0m0s"},
			{at: 73 * hour, job: "d", weight: 5, want: "granted 73h0m0s"},
		}},
	{name: "ended, a ramp is its quota, and forgets nothing", scopes: global(limitOf(warm)), rows: []row{
		{at: hour, job: "a", weight: 2, want: "granted 1h0m0s"},
		{at: hour, call: "limits", job: "global", text: "20/day+9h@UTC", want: "done"},
		{at: hour, job: "b", weight: 18, want: "granted 1h0m0s"},
		{at: hour, job: "c", want: "booked 25h0m0s, global 20/day+9h@UTC"},
		{at: hour, call: "reset", job: "global", want: "done"},
		{at: hour, call: "usage", job: "global", want: "20 used, 1 booked, free 25h0m0s"},
		{at: hour, job: "d", weight: 4, want: "booked 25h0m0s, global 2/day+9h@UTC"},
	}},
	{name: "a step of two days, and a day of 23 hours", rows: []row{
		{at: 1719 * hour, job: "a", want: "granted 1719h0m0s"}, // midnight before Sunday, the 28th of March
		{at: 1719 * hour, job: "b", want: "booked 1742h0m0s, global 1/day@Europe/Paris"},
		{at: 1719 * hour, job: "c", weight: 2, want: "booked 1766h0m0s, global 1/day@Europe/Paris"},
	}, scopes: global(limitOf("ramp 1 3/day every 2d from 2027-03-28 @Europe/Paris"))},
	{name: "the first of a month, and no such day", scopes: global(limitOf("ramp 1 2 3/month+30d from 2027-01-15 @UTC")),
		rows: []row{
			{at: 0, job: "a", want: "booked 376h0m0s, global 1/month+30d@UTC"},             // the 31st of January
			{at: 0, job: "b", weight: 2, want: "booked 1048h0m0s, global 1/month+30d@UTC"}, // the 28th of February
			{at: 0, job: "c", weight: 3, want: "booked 1792h0m0s, global 1/month+30d@UTC"}, // the 31st of March
		}},
	{name: "in shadow a ramp tells until when it would have held a job", scopes: global(limitOf(warm)),
		mode: throttle.Shadow, rows: []row{
			{at: 0, job: "a", want: "granted 0s; shadow global 2/day+9h@UTC until 1h0m0s"},
			{at: hour, job: "b", weight: 3, want: "granted 1h0m0s; shadow global 2/day+9h@UTC until 25h0m0s"},
			{at: hour, job: "c", weight: 6, want: "granted 1h0m0s; shadow global 2/day+9h@UTC until 49h0m0s"},
		}},
	{name: "a settlement corrects the period of the start", scopes: global(limitOf(warm)), rows: []row{
		{at: hour, job: "a", weight: 2, want: "granted 1h0m0s"},
		{at: hour, call: "settle", job: "a", actual: 1, want: "true"},
		{at: hour, job: "b", want: "granted 1h0m0s"},
		{at: 25 * hour, call: "usage", job: "global", want: "0 used, 0 booked, free 25h0m0s"},
	}},
	{name: "F23 F24 the clock decides the step, also after it stepped back over an edge", scopes: global(limitOf(warm)),
		rows: []row{
			{at: 25 * hour, job: "a", weight: 5, want: "granted 25h0m0s"},
			{at: 25*hour - 60*second, job: "b", weight: 2, want: "granted 24h59m0s"},
			{at: 25*hour - 60*second, job: "c", weight: 3, want: "booked 49h0m0s, global 2/day+9h@UTC"},
			{at: 25 * hour, job: "d", want: "booked 49h0m0s, global 5/day+9h@UTC"},
		}},
}
