package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// hour is a common step of quotas and hours. The beginning of a timeline is a Friday, the 15th of January 2027, at
// 8 o'clock in UTC.
const hour = time.Hour

// limitOf reads a limit.
func limitOf(text string) throttle.Limit {
	limit, err := throttle.ParseLimit(text)
	if err != nil {
		panic(err)
	}
	return limit
}

// quotaTimelines are of quotas by the calendar.
var quotaTimelines = []timeline{
	{name: "all units of a quota come back when its period ends", scopes: global(limitOf("3/day+9h@UTC")), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: hour - micro, job: "b", weight: 2, want: "granted 59m59.999999s"},
		{at: hour - micro, job: "c", want: "booked 1h0m0s, global 3/day+9h@UTC"},
		{at: hour - micro, job: "d", weight: 2, want: "booked 1h0m0s, global 3/day+9h@UTC"},
		{at: hour - micro, job: "e", want: "booked 25h0m0s, global 3/day+9h@UTC"},
		{at: hour - micro, call: "usage", job: "global", want: "3 used, 4 booked, free 25h0m0s"},
		{at: hour, call: "usage", job: "global", want: "0 used, 4 booked, free 25h0m0s"},
		{at: hour, job: "c", want: "granted 1h0m0s"},
		{at: hour, job: "d", weight: 2, want: "granted 1h0m0s"},
		{at: 25*hour - micro, job: "f", want: "booked 25h0m0s, global 3/day+9h@UTC"},
		{at: 25 * hour, job: "e", want: "granted 25h0m0s"},
		{at: 25 * hour, job: "f", want: "granted 25h0m0s"},
		{at: 25 * hour, call: "usage", job: "global", want: "2 used, 0 booked, free 25h0m0s"},
	}},
	{name: "a heavy job waits for a period of its own", scopes: global(limitOf("10/day+9h@UTC")), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 0, job: "heavy", weight: 10, want: "booked 1h0m0s, global 10/day+9h@UTC"},
		{at: 0, job: "b", weight: 9, want: "granted 0s"},
		{at: 0, job: "c", want: "booked 25h0m0s, global 10/day+9h@UTC"},
		{at: hour, job: "heavy", weight: 10, want: "granted 1h0m0s"},
	}},
	{name: "a deadline before the edge is too early", scopes: global(limitOf("1/day+9h@UTC")), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 0, job: "b", deadline: hour - micro, want: "too late, 1h0m0s, global 1/day+9h@UTC"},
		{at: 0, job: "c", deadline: hour, want: "booked 1h0m0s, global 1/day+9h@UTC"},
	}},
	{name: "a line goes on at the edge, and takes turns", scopes: tenantAndDomain(100, 100, 100), lookahead: second,
		rows: []row{
			{at: 0, call: "limits", job: "global", text: "2/day+9h@UTC", want: "done"},
			{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
			{at: second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
			{at: second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: second, call: "pull", want: "nothing"},
			{at: hour - second - micro, call: "pull", want: "nothing"},
			{at: hour - second, call: "pull", want: "booked a2 1h0m0s, b1 1h0m0s"},
			{at: hour, job: "a2", keys: "tenant=a", want: "granted 1h0m0s"},
			{at: hour, job: "b1", keys: "tenant=b", want: "granted 1h0m0s"},
			{at: 25*hour - second, call: "pull", want: "booked a3 25h0m0s"},
			{at: 25*hour - second, call: "lines", want: ""},
		}},
	{name: "a quota and a window hold at once", scopes: global(per10s(2), limitOf("3/day+9h@UTC")), rows: []row{
		{at: 0, job: "a", weight: 2, want: "granted 0s"},
		{at: second, job: "b", want: "booked 10s, global 2/10s"},
		{at: second, job: "c", weight: 2, want: "booked 1h0m0s, global 3/day+9h@UTC"},
		{at: second, job: "d", want: "booked 1h0m10s, global 2/10s"}, // the next period is opened at the window's pace
		{at: second, call: "usage", job: "global", want: "2 used, 4 booked, free 10s; 2 used, 4 booked, free 25h0m0s"},
	}},
	{name: "midnight in Paris, in Kolkata, and the first of a month", scopes: global(limitOf("1/day@Europe/Paris")),
		rows: []row{
			{at: 0, job: "a", want: "granted 0s"},
			{at: 0, job: "b", want: "booked 15h0m0s, global 1/day@Europe/Paris"},
			{at: 0, job: "c", want: "booked 39h0m0s, global 1/day@Europe/Paris"},
			{at: 0, call: "cancel", job: "b", want: "true"},
			{at: 0, call: "cancel", job: "c", want: "true"},
			{at: second, call: "limits", job: "global", text: "1/day@Asia/Kolkata", want: "done"},
			{at: second, job: "d", want: "granted 1s"}, // a new quota begins empty
			{at: second, job: "e", want: "booked 10h30m0s, global 1/day@Asia/Kolkata"},
			{at: second, call: "cancel", job: "e", want: "true"},
			{at: 2 * second, call: "limits", job: "global", text: "1/month@UTC", want: "done"},
			{at: 2 * second, job: "f", want: "granted 2s"},
			{at: 2 * second, job: "g", want: "booked 400h0m0s, global 1/month@UTC"},
			{at: 2 * second, job: "h", want: "booked 1072h0m0s, global 1/month@UTC"},
			{at: 2 * second, call: "inforce", job: "global", want: "1/month@UTC of the key, enforce"},
		}},
	{name: "days of 23 and of 25 hours", scopes: global(limitOf("1/day@Europe/Paris")), rows: []row{
		{at: 1719 * hour, job: "a", want: "granted 1719h0m0s"}, // midnight before Sunday, the 28th of March
		{at: 1719 * hour, job: "b", want: "booked 1742h0m0s, global 1/day@Europe/Paris"},
		{at: 6926 * hour, job: "c", want: "granted 6926h0m0s"}, // midnight before Sunday, the 31st of October
		{at: 6926 * hour, job: "d", want: "booked 6951h0m0s, global 1/day@Europe/Paris"},
	}},
	{name: "a month without that day", scopes: global(limitOf("1/month+30d@UTC")), rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 0, job: "b", want: "booked 376h0m0s, global 1/month+30d@UTC"},  // the 31st of January
		{at: 0, job: "c", want: "booked 1048h0m0s, global 1/month+30d@UTC"}, // the 28th of February
		{at: 0, job: "d", want: "booked 1792h0m0s, global 1/month+30d@UTC"}, // the 31st of March
	}},
	{name: "a settlement corrects the period of the start", scopes: global(limitOf("10/day+9h@UTC")), rows: []row{
		{at: 0, job: "a", weight: 4, want: "granted 0s"},
		{at: second, call: "settle", job: "a", actual: 7, want: "true"},
		{at: second, call: "usage", job: "global", want: "7 used, 0 booked, free 1s"},
		{at: hour - second, job: "b", weight: 3, want: "granted 59m59s"},
		{at: hour, job: "c", weight: 5, want: "granted 1h0m0s"},
		{at: hour, call: "refund", job: "b", want: "true"}, // of a period that is over
		{at: hour, call: "usage", job: "global", want: "5 used, 0 booked, free 1h0m0s"},
		{at: hour, call: "refund", job: "c", want: "true"},
		{at: hour, call: "usage", job: "global", want: "0 used, 0 booked, free 1h0m0s"},
	}},
	{name: "in shadow a quota tells until when it would have held a job", scopes: global(limitOf("1/day+9h@UTC")),
		mode: throttle.Shadow, rows: []row{
			{at: 0, job: "a", want: "granted 0s"},
			{at: 0, job: "b", want: "granted 0s; shadow global 1/day+9h@UTC until 1h0m0s"},
			{at: hour, job: "c", want: "granted 1h0m0s"},
		}},
	{name: "raised and lowered within the period, a quota forgets nothing", scopes: global(limitOf("2/day+9h@UTC")),
		rows: []row{
			{at: 0, job: "a", weight: 2, want: "granted 0s"},
			{at: second, call: "limits", job: "global", text: "3/day+9h@UTC", want: "done"},
			{at: second, job: "b", want: "granted 1s"},
			{at: second, job: "c", want: "booked 1h0m0s, global 3/day+9h@UTC"},
			{at: 2 * second, call: "limits", job: "global", text: "0/day+9h@UTC", want: "done"},
			{at: hour, job: "c", want: "waiting, 0 ahead"},
			{at: hour, call: "reset", job: "global", want: "done"},
			{at: hour, call: "pull", want: "booked c 1h0m0s"},
			{at: hour, job: "c", want: "granted 1h0m0s"},
			{at: hour, call: "usage", job: "global", want: "1 used, 0 booked, free 1h0m0s"},
		}},
	{name: "F23 after a step back over an edge the count of the new period stands, that of the old one is lost",
		scopes: global(limitOf("2/day+9h@UTC")), rows: []row{
			{at: 0, job: "a", weight: 2, want: "granted 0s"},
			{at: hour, job: "b", want: "granted 1h0m0s"},
			{at: hour - 60*second, job: "c", weight: 2, want: "granted 59m0s"},
			{at: hour - 60*second, job: "d", want: "booked 1h0m0s, global 2/day+9h@UTC"},
			{at: hour, job: "d", want: "granted 1h0m0s"},
			{at: hour, job: "e", want: "booked 25h0m0s, global 2/day+9h@UTC"},
		}},
	{name: "F23 a step back over an edge of up to 30 s stands still in the new period",
		scopes: global(limitOf("2/day+9h@UTC")), rows: []row{
			{at: 0, job: "a", weight: 2, want: "granted 0s"},
			{at: hour, job: "b", want: "granted 1h0m0s"},
			{at: hour - 20*second, job: "c", want: "granted 59m40s"},
			{at: hour - 20*second, job: "d", want: "booked 25h0m0s, global 2/day+9h@UTC"},
		}},
	{name: "F24 a step forward over an edge begins the period, a step back within it keeps its count",
		scopes: global(limitOf("2/day+9h@UTC")), rows: []row{
			{at: 2 * hour, job: "a", weight: 2, want: "granted 2h0m0s"},
			{at: 30 * hour, job: "b", weight: 2, want: "granted 30h0m0s"},
			{at: 26 * hour, job: "c", want: "booked 49h0m0s, global 2/day+9h@UTC"},
			{at: 49 * hour, job: "c", want: "granted 49h0m0s"},
		}},
}
