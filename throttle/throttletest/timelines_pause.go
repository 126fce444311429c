package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// pauseTimelines are about scope keys that are closed for a time.
var pauseTimelines = []timeline{
	{name: "a paused key starts nothing until then, others go on", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: 5 * second, want: "until 5s"},
		{at: 1 * second, call: "peek", job: "a1", keys: "tenant=a", want: "booked 5s, tenant a paused"},
		{at: 1 * second, job: "a1", keys: "tenant=a", want: "booked 5s, tenant a paused"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "granted 1s"},
		{at: 1 * second, job: "b2", keys: "tenant=b domain=x", want: "granted 1s"},
		{at: 1 * second, call: "usage", job: "tenant a", want: "0 used, 1 booked, free 1s"}, // of its limits
		{at: 5*second - micro, job: "a2", keys: "tenant=a", want: "booked 5s, tenant a paused"},
		{at: 5 * second, job: "a1", keys: "tenant=a", want: "granted 5s"},
		{at: 5 * second, job: "a3", keys: "tenant=a", want: "granted 5s"},
	}},
	{name: "a pause is made longer, never shorter", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: 10 * second, want: "until 10s"},
		{at: 1 * second, call: "pause", job: "tenant a", until: 5 * second, want: "until 10s"},
		{at: 1 * second, job: "a1", keys: "tenant=a", want: "booked 10s, tenant a paused"},
		{at: 2 * second, call: "pause", job: "tenant a", until: 12 * second, want: "until 12s"},
		{at: 2 * second, call: "inforce", job: "tenant a", want: "10/10s of the configuration, enforce, paused until 12s"},
		{at: 2 * second, job: "a2", keys: "tenant=a", want: "booked 12s, tenant a paused"},
		{at: 10 * second, job: "a1", keys: "tenant=a", want: "booked 12s, tenant a paused"},
		{at: 12 * second, job: "a1", keys: "tenant=a", want: "granted 12s"},
		{at: 12 * second, call: "inforce", job: "tenant a", want: "10/10s of the configuration, enforce"},
	}},
	{name: "a pause until a time that is past is none", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 3 * second, call: "pause", job: "tenant a", until: 1 * second, want: "until 3s"},
		{at: 3 * second, job: "a1", keys: "tenant=a", want: "granted 3s"},
		{at: 3 * second, call: "resume", job: "tenant a", want: "false"},
	}},
	{name: "a pause can be ended", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: time.Hour, want: "until 1h0m0s"},
		{at: 0, call: "pause", job: "tenant b", until: time.Hour, want: "until 1h0m0s"},
		{at: 1 * second, job: "a1", keys: "tenant=a", want: "booked 1h0m0s, tenant a paused"},
		{at: 1 * second, call: "resume", job: "tenant a", want: "true"},
		{at: 1 * second, call: "resume", job: "tenant a", want: "false"},
		{at: 1 * second, call: "resume", job: "tenant c", want: "false"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "granted 1s"},
		{at: 2 * second, call: "pause", job: "tenant a", until: 4 * second, want: "until 4s"}, // a new one
		{at: 2 * second, job: "b1", keys: "tenant=b", want: "booked 1h0m0s, tenant b paused"},
	}},
	{name: "all are paused", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 0, call: "pause", job: "global", until: 5 * second, want: "until 5s"},
		{at: 1 * second, job: "a1", keys: "tenant=a", want: "booked 5s, global paused"},
		{at: 1 * second, job: "b1", keys: "tenant=b domain=x", want: "booked 5s, global paused"},
		{at: 2 * second, call: "resume", job: "global", want: "true"},
		{at: 2 * second, job: "c1", keys: "tenant=c", want: "granted 2s"},
		{at: 5 * second, job: "a1", keys: "tenant=a", want: "granted 5s"},
	}},
	{name: "the longest pause counts", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: 5 * second, want: "until 5s"},
		{at: 0, call: "pause", job: "domain x", until: 8 * second, want: "until 8s"},
		{at: 1 * second, job: "ax", keys: "tenant=a domain=x", want: "booked 8s, domain x paused"},
		{at: 1 * second, job: "ay", keys: "tenant=a domain=y", want: "booked 5s, tenant a paused"},
		{at: 1 * second, job: "bx", keys: "tenant=b domain=x", want: "booked 8s, domain x paused"},
		{at: 1 * second, job: "a", keys: "tenant=a", want: "booked 5s, tenant a paused"},
		{at: 1 * second, job: "b", keys: "tenant=b", want: "granted 1s"},
	}},
	{name: "behind a pause limits hold as ever", scopes: tenantAndDomain(1, 10, 10), rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 1 * second, call: "pause", job: "tenant a", until: 5 * second, want: "until 5s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "booked 10s, tenant a 1/10s"},
		{at: 1 * second, call: "pause", job: "tenant b", until: 5 * second, want: "until 5s"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "booked 5s, tenant b paused"},
		{at: 1 * second, job: "b2", keys: "tenant=b", want: "booked 15s, tenant b 1/10s"},
	}},
	{name: "a start within MaxWait is granted for the end of the pause", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: 5 * second, want: "until 5s"},
		{at: 4 * second, job: "a1", keys: "tenant=a", wait: second - micro, want: "booked 5s, tenant a paused"},
		{at: 4 * second, job: "a2", keys: "tenant=a", wait: second, want: "granted 5s"},
		{at: 4500 * milli, job: "a1", keys: "tenant=a", wait: 500 * milli, want: "granted 5s"},
	}},
	{name: "a deadline before the end of the pause is told", scopes: tenantAndDomain(10, 10, 10), rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: 5 * second, want: "until 5s"},
		{at: 1 * second, job: "a1", keys: "tenant=a", deadline: 5*second - micro, want: "too late, 5s, tenant a paused"},
		{at: 1 * second, job: "a1", keys: "tenant=a", deadline: 5 * second, want: "booked 5s, tenant a paused"},
	}},
	{name: "what was granted before is not called back", scopes: tenantAndDomain(1, 10, 10), rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 9 * second, job: "a2", keys: "tenant=a", wait: second, want: "granted 10s"},
		{at: 9 * second, call: "pause", job: "tenant a", until: 30 * second, want: "until 30s"},
		{at: 10 * second, call: "settle", job: "a2", keys: "tenant=a", actual: 2, want: "true"},
	}},
	{name: "a booked job that comes into a pause is the first of its lane", scopes: tenantAndDomain(1, 100, 100), lookahead: second, rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 9500 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, tenant a 1/10s"},
		{at: 9600 * milli, job: "a3", keys: "tenant=a", want: "waiting, 0 ahead"},
		{at: 9600 * milli, call: "pause", job: "tenant a", until: 15 * second, want: "until 15s"},
		{at: 9700 * milli, job: "a2", keys: "tenant=a", want: "booked 10s, tenant a paused"}, // as it was promised
		{at: 10 * second, job: "a2", keys: "tenant=a", want: "waiting, 1 ahead"},
		{at: 10 * second, job: "a3", keys: "tenant=a", want: "waiting, 1 ahead"},
		{at: 10 * second, call: "pull", want: "nothing"}, // until a second before
		{at: 10 * second, job: "b1", keys: "tenant=b", want: "granted 10s"},
		{at: 14*second - micro, call: "pull", want: "nothing"},
		{at: 14 * second, call: "pull", want: "booked a2 15s"},
		{at: 15 * second, job: "a2", keys: "tenant=a", want: "granted 15s"},
		{at: 24 * second, call: "pull", want: "booked a3 25s"},
	}},
	{name: "the lanes of a paused domain wait, no other", scopes: tenantAndDomain(100, 100, 100), lookahead: second, rows: []row{
		{at: 0, call: "pause", job: "domain x", until: 60 * second, want: "until 1m0s"},
		{at: 1 * second, job: "ax", keys: "tenant=a domain=x", want: "waiting, 0 ahead"},
		{at: 1 * second, call: "pull", want: "nothing"},
		{at: 1 * second, job: "bx", keys: "tenant=b domain=x", want: "waiting, 0 ahead"},
		{at: 2 * second, job: "ay", keys: "tenant=a domain=y", want: "granted 2s"},
		{at: 2 * second, job: "a", keys: "tenant=a", want: "granted 2s"},
		{at: 2 * second, job: "b", keys: "tenant=b", want: "granted 2s"},
		{at: 59*second - micro, call: "pull", want: "nothing"},
		{at: 59 * second, call: "pull", want: "booked ax 1m0s, bx 1m0s"},
		{at: 60 * second, job: "ax", keys: "tenant=a domain=x", want: "granted 1m0s"},
	}},
	{name: "a paused tenant leaves its turn to the others", scopes: tenantAndDomain(100, 100, 2), lookahead: second, rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: 60 * second, want: "until 1m0s"},
		{at: 0, job: "c1", keys: "tenant=c", weight: 2, want: "granted 0s"},
		{at: 1 * second, job: "a1", keys: "tenant=a", want: "waiting, 0 ahead"},
		{at: 1*second + milli, job: "a2", keys: "tenant=a domain=x", want: "waiting, 0 ahead"},
		{at: 1*second + milli, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
		{at: 2 * second, call: "pull", want: "nothing"},
		{at: 9 * second, call: "pull", want: "booked b1 10s"},
		{at: 10 * second, job: "b1", keys: "tenant=b", want: "granted 10s"},
		{at: 10 * second, call: "lines", want: "tenant a 1"},
		{at: 59 * second, call: "pull", want: "booked a1 1m0s, a2 1m0s"},
	}},
	{name: "who waits for a pause goes on when it is ended", scopes: tenantAndDomain(100, 100, 100), lookahead: second, rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: time.Hour, want: "until 1h0m0s"},
		{at: 0, call: "pause", job: "domain x", until: time.Hour, want: "until 1h0m0s"},
		{at: 1 * second, job: "a1", keys: "tenant=a", want: "waiting, 0 ahead"},
		{at: 1 * second, call: "pull", want: "nothing"},
		{at: 1 * second, job: "b1", keys: "tenant=b domain=x", want: "waiting, 0 ahead"},
		{at: 1 * second, call: "pull", want: "nothing"},
		{at: 2 * second, call: "resume", job: "tenant a", want: "true"},
		{at: 2 * second, call: "pull", want: "booked a1 2s"},
		{at: 2 * second, job: "a1", keys: "tenant=a", want: "granted 2s"},
		{at: 3 * second, call: "pull", want: "nothing"}, // the domain stays closed
		{at: 4 * second, call: "resume", job: "domain x", want: "true"},
		{at: 4 * second, call: "pull", want: "booked b1 4s"},
	}},
	{name: "who waits for a pause of all goes on when it is ended", scopes: tenantAndDomain(100, 100, 100), lookahead: second, rows: []row{
		{at: 0, call: "pause", job: "global", until: 5 * second, want: "until 5s"},
		{at: 1 * second, job: "a1", keys: "tenant=a", want: "waiting, 0 ahead"},
		{at: 1 * second, call: "pull", want: "nothing"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
		{at: 2 * second, call: "resume", job: "global", want: "true"},
		{at: 2 * second, call: "pull", want: "booked a1 2s, b1 2s"},
	}},
	{name: "a scope without limits can be paused", scopes: []throttle.Scope{
		{Name: "host", Optional: true},
		{Name: throttle.Global, Limits: limits(per10s(10))},
	}, rows: []row{
		{at: 0, job: "1", keys: "host=x", want: "granted 0s"},
		{at: 0, call: "pause", job: "host x", until: 5 * second, want: "until 5s"},
		{at: 1 * second, job: "2", keys: "host=x", want: "booked 5s, host x paused"},
		{at: 1 * second, job: "3", keys: "host=y", want: "granted 1s"},
		{at: 1 * second, job: "4", want: "granted 1s"},
		{at: 1 * second, call: "inforce", job: "host x", want: " of the configuration, enforce, paused until 5s"},
		{at: 1 * second, call: "usage", job: "host x", want: ""},
		{at: 5 * second, job: "2", keys: "host=x", want: "granted 5s"},
	}},
	{name: "a throttle without a limit can be paused", scopes: global(), rows: []row{
		{at: 0, call: "pause", job: "global", until: 5 * second, want: "until 5s"},
		{at: 1 * second, job: "1", want: "booked 5s, global paused"},
		{at: 5 * second, job: "1", want: "granted 5s"},
	}},
	{name: "a clock that steps back makes a pause longer by as much", scopes: global(per10s(10)), rows: []row{
		{at: 100 * second, job: "a", want: "granted 1m40s"},
		{at: 100 * second, call: "pause", job: "global", until: 110 * second, want: "until 1m50s"},
		{at: 95 * second, job: "b", want: "booked 1m50s, global paused"},
		{at: 110 * second, job: "c", want: "granted 1m50s"},
	}},
}
