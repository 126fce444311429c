package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// boundedLine limits starts to two in ten seconds. Three jobs may wait in all, and jobs of four units for each tenant.
func boundedLine(mode throttle.Mode) []throttle.Scope {
	return []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(2, 10*time.Second)}, Mode: mode,
			MaxWaiting: throttle.Length{Jobs: 3}},
		{Name: "tenant", MaxWaiting: throttle.Length{Units: 4}},
	}
}

// boundTimelines are about lines that may not get longer.
var boundTimelines = []timeline{
	{name: "a bounded job that would make a line too long is refused, and no other", scopes: boundedLine(throttle.Enforce),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", costs: "global=2 tenant=3", bounded: true, want: "granted 0s"},
			{at: 0, job: "a2", keys: "tenant=a", costs: "tenant=3", bounded: true, want: "waiting, 0 ahead"},
			{at: 0, job: "a3", keys: "tenant=a", costs: "tenant=2", bounded: true, want: "full, tenant a: 1 job, 3 units"},
			{at: 0, job: "a4", keys: "tenant=a", bounded: true, want: "waiting, 1 ahead"},
			{at: 0, job: "a2", keys: "tenant=a", costs: "tenant=3", bounded: true, want: "waiting, 1 ahead"},
			{at: 0, job: "a5", keys: "tenant=a", want: "waiting, 2 ahead"},
			{at: 0, job: "b1", keys: "tenant=b", bounded: true, want: "full, global : 3 jobs, 3 units"},
			{at: 0, call: "leave", job: "a4", want: "true"},
			{at: 0, job: "b1", keys: "tenant=b", bounded: true, plan: true, want: "waiting, 0 ahead"},
			{at: 0, job: "b2", keys: "tenant=b", bounded: true, want: "full, global : 3 jobs, 3 units"},
			{at: 9 * second, call: "pull", want: "booked a2 10s, b1 10s"},
			{at: 9 * second, job: "b2", keys: "tenant=b", bounded: true, want: "full, global : 3 jobs, 3 units"},
			{at: 10 * second, job: "a2", keys: "tenant=a", costs: "tenant=3", want: "granted 10s"},
			{at: 10 * second, job: "b2", keys: "tenant=b", bounded: true, want: "waiting, 0 ahead"},
			{at: 10 * second, job: "b3", keys: "tenant=b", bounded: true, want: "full, global : 3 jobs, 3 units"},
		}},
	{name: "a bound holds where its scope enforces its limits", scopes: boundedLine(throttle.Shadow), lookahead: second,
		rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", plan: true, bounded: true, want: "booked 0s"},
			{at: 0, job: "a2", keys: "tenant=a", plan: true, bounded: true, want: "booked 0s"},
			{at: 0, job: "b1", keys: "tenant=b", plan: true, bounded: true, want: "booked 0s"},
			{at: 0, job: "b2", keys: "tenant=b", plan: true, bounded: true, want: "booked 0s"},
			{at: 0, job: "a3", keys: "tenant=a", costs: "tenant=3", plan: true, bounded: true,
				want: "full, tenant a: 2 jobs, 2 units"},
		}},
	{name: "a booking whose job does not come is in its line until it is forgotten", scopes: boundedLine(throttle.Enforce),
		lookahead: second, grace: 5 * second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", costs: "tenant=4", plan: true, bounded: true, want: "booked 0s"},
			{at: 6 * second, call: "pull", want: "overdue a1 0s"},
			{at: 7 * second, job: "a2", keys: "tenant=a", plan: true, bounded: true, want: "full, tenant a: 1 job, 4 units"},
			{at: 607 * second, call: "pull", want: "nothing"},
			{at: 607 * second, job: "a2", keys: "tenant=a", plan: true, bounded: true, want: "booked 10m7s"},
		}},
	{name: "a job that was booked is not refused, whatever it asks again for", scopes: boundedLine(throttle.Enforce),
		lookahead: second, grace: 5 * second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", costs: "tenant=4", plan: true, bounded: true, want: "booked 0s"},
			{at: 0, job: "b1", keys: "tenant=b", costs: "tenant=3", plan: true, bounded: true, want: "booked 0s"},
			{at: 0, job: "b1", keys: "tenant=a", plan: true, bounded: true, want: "booked 0s"},
			{at: 0, job: "a2", keys: "tenant=a", bounded: true, want: "full, tenant a: 2 jobs, 5 units"},
			{at: 0, job: "b2", keys: "tenant=b", costs: "tenant=5", bounded: true, want: "full, tenant b: 0 jobs"},
			{at: 6 * second, call: "pull", want: "overdue a1 0s, b1 0s"},
			{at: 7 * second, job: "a2", keys: "tenant=a", plan: true, bounded: true, want: "full, tenant a: 2 jobs, 5 units"},
			{at: 7 * second, job: "a1", keys: "tenant=a", costs: "tenant=4", plan: true, bounded: true, want: "booked 7s"},
		}},
	{name: "a waiting job that asks again with other keys is in their lines alone", scopes: boundedLine(throttle.Enforce),
		lookahead: second, rows: []row{ // jobs that have left a lane are ahead until a pull finds them gone
			{at: 0, job: "a1", keys: "tenant=a", costs: "global=2", bounded: true, want: "granted 0s"},
			{at: 0, job: "a2", keys: "tenant=a", costs: "tenant=3", bounded: true, want: "waiting, 0 ahead"},
			{at: 0, job: "a2", keys: "tenant=b", costs: "tenant=2", bounded: true, want: "waiting, 0 ahead"},
			{at: 0, job: "a3", keys: "tenant=a", costs: "tenant=5", bounded: true, want: "full, tenant a: 0 jobs"},
			{at: 0, job: "b1", keys: "tenant=b", costs: "tenant=5", bounded: true, want: "full, tenant b: 1 job, 2 units"},
			{at: 0, job: "a3", keys: "tenant=a", costs: "tenant=4", bounded: true, want: "waiting, 1 ahead"},
			{at: 0, job: "a2", keys: "tenant=a", bounded: true, want: "waiting, 2 ahead"},
			{at: 0, job: "b1", keys: "tenant=b", costs: "tenant=5", bounded: true, want: "full, tenant b: 0 jobs"},
			{at: 0, job: "a4", keys: "tenant=a", bounded: true, want: "full, tenant a: 2 jobs, 5 units"},
			{at: 0, job: "b1", keys: "tenant=b", bounded: true, want: "waiting, 1 ahead"},
			{at: 0, job: "b2", keys: "tenant=b", bounded: true, want: "full, global : 3 jobs, 3 units"},
		}},
}
