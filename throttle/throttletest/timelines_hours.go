package throttletest

import "github.com/asynq-throttle/asynq-throttle/throttle"

// nine are hours that open an hour after the beginning of a timeline, a Friday, and a weekend after that.
const nine = "open Mon-Fri 09:00-17:00 @UTC"

// hoursTimelines are of opening hours.
var hoursTimelines = []timeline{
	{name: "outside of hours a job has its place at the next opening", scopes: global(limitOf(nine)), rows: []row{
		{at: 0, job: "a", want: "booked 1h0m0s, global " + nine},
		{at: 0, job: "b", weight: 50, want: "booked 1h0m0s, global " + nine},
		{at: 0, call: "usage", job: "global", want: "0 used, 0 booked, free 1h0m0s"},
		{at: hour, job: "a", want: "granted 1h0m0s"},
		{at: hour, job: "b", weight: 50, want: "granted 1h0m0s"},
		{at: 9*hour - micro, job: "c", want: "granted 8h59m59.999999s"},
		{at: 9 * hour, job: "d", want: "booked 73h0m0s, global " + nine}, // on Monday
		{at: 9 * hour, call: "usage", job: "global", want: "0 used, 0 booked, free 73h0m0s"},
		{at: 73 * hour, job: "d", want: "granted 73h0m0s"},
	}},
	{name: "hours and a window hold at once, across a closed night", scopes: global(limitOf("2/8h"), limitOf(nine)),
		rows: []row{
			{at: 0, job: "a", weight: 2, want: "booked 1h0m0s, global " + nine},
			{at: 0, job: "b", want: "booked 73h0m0s, global " + nine}, // the window has room at 17:00
			{at: hour, job: "a", weight: 2, want: "granted 1h0m0s"},
			{at: hour, job: "c", weight: 2, want: "booked 97h0m0s, global " + nine},
			{at: hour, job: "d", want: "booked 73h0m0s, global " + nine},
		}},
	{name: "a deadline before the opening is too early", scopes: global(limitOf(nine)), rows: []row{
		{at: 0, job: "a", deadline: hour - micro, want: "too late, 1h0m0s, global " + nine},
		{at: 0, job: "b", deadline: hour, want: "booked 1h0m0s, global " + nine},
	}},
	{name: "a booked job that comes after closing starts at the next opening", scopes: global(limitOf(nine)),
		rows: []row{
			{at: 0, job: "a", want: "booked 1h0m0s, global " + nine},
			{at: second, call: "limits", job: "global", text: "open Fri 10:00-11:00 @UTC", want: "done"},
			{at: hour, job: "a", want: "booked 2h0m0s, global open Fri 10:00-11:00 @UTC"},
		}},
	{name: "a line goes on at the opening, and takes turns", scopes: tenantAndDomain(100, 100, 100), lookahead: second,
		rows: []row{
			{at: 0, call: "limits", job: "global", text: "2/1h, " + nine, want: "done"},
			{at: second, job: "a1", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: second, job: "a2", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: second, call: "pull", want: "nothing"},
			{at: hour - second - micro, call: "pull", want: "nothing"},
			{at: hour - second, call: "pull", want: "booked a1 1h0m0s, b1 1h0m0s"},
			{at: hour, job: "a1", keys: "tenant=a", want: "granted 1h0m0s"},
			{at: hour, job: "b1", keys: "tenant=b", want: "granted 1h0m0s"},
			{at: 2*hour - second, call: "pull", want: "booked a2 2h0m0s"},
		}},
	{name: "a tenant has hours of its own", scopes: tenantAndDomain(100, 100, 100), lookahead: second, rows: []row{
		{at: 0, call: "limits", job: "tenant a", text: "100/10s, open 09:00-17:00 @Asia/Kolkata", want: "done"},
		{at: 0, call: "limits", job: "tenant b", text: "100/10s, " + nine, want: "done"},
		{at: second, job: "a", keys: "tenant=a", want: "granted 1s"},
		{at: second, job: "b", keys: "tenant=b", want: "waiting, 0 ahead"},
		{at: second, job: "c", keys: "tenant=c", want: "granted 1s"},
		{at: 3*hour + 30*60*second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
		{at: 4 * hour, call: "reset", job: "tenant a", want: "done"},
		{at: 4 * hour, call: "pull", want: "booked b 4h0m0s, a2 4h0m0s"},
	}},
	{name: "a pause holds within hours, and hours after a pause", scopes: global(limitOf(nine)), rows: []row{
		{at: 0, call: "pause", job: "global", until: 2 * hour, want: "until 2h0m0s"},
		{at: 0, job: "a", want: "booked 2h0m0s, global paused"},
		{at: 8 * hour, call: "pause", job: "global", until: 10 * hour, want: "until 10h0m0s"},
		{at: 8 * hour, job: "b", want: "booked 73h0m0s, global " + nine},
	}},
	{name: "in shadow hours tell until when they would have held a job", scopes: global(limitOf(nine)),
		mode: throttle.Shadow, rows: []row{
			{at: 0, job: "a", want: "granted 0s; shadow global " + nine + " until 1h0m0s"},
			{at: hour, job: "b", want: "granted 1h0m0s"},
		}},
	{name: "nights and days of changes of the clock", scopes: global(limitOf("open Sun 01:30-02:30 @Europe/Paris")),
		rows: []row{
			{at: 0, job: "a", want: "booked 40h30m0s, global open Sun 01:30-02:30 @Europe/Paris"},
			{at: 1720*hour + 30*60*second - micro, job: "b",
				want: "booked 1720h30m0s, global open Sun 01:30-02:30 @Europe/Paris"}, // the 28th of March
			{at: 1721*hour - micro, job: "c", want: "granted 1720h59m59.999999s"}, // the clock goes from 2 to 3 o'clock
			{at: 1721 * hour, job: "d", want: "booked 1887h30m0s, global open Sun 01:30-02:30 @Europe/Paris"},
			{at: 6928*hour + 30*60*second - micro, job: "e", want: "granted 6928h29m59.999999s"}, // the 31st of October
			{at: 6928*hour + 30*60*second, job: "f", // 02:30 comes twice, and the first one counts
				want: "booked 7096h30m0s, global open Sun 01:30-02:30 @Europe/Paris"},
		}},
	{name: "F23 F24 hours are those of Redis' clock, also after its steps", scopes: global(limitOf(nine)), rows: []row{
		{at: hour, job: "a", want: "granted 1h0m0s"},
		{at: hour - 20*second, job: "b", want: "booked 1h0m0s, global " + nine}, // closed again, after a small step back
		{at: hour - 60*second, job: "c", want: "booked 1h0m0s, global " + nine}, // and after a far one
		{at: 9 * hour, job: "b", want: "booked 73h0m0s, global " + nine},        // forward over the closing
		{at: 2 * hour, job: "d", want: "granted 2h0m0s"},                        // and back
	}},
}
