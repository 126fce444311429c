package throttletest

import (
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// inMode are tenantAndDomain with modes for the tenant and for all.
func inMode(tenant, all throttle.Mode, ofTenant, ofAll int64) []throttle.Scope {
	scopes := tenantAndDomain(ofTenant, 100, ofAll)
	scopes[0].Mode, scopes[2].Mode = tenant, all
	return scopes
}

// modeTimelines are about how far limits are in force, and about plans.
var modeTimelines = []timeline{
	{name: "in shadow jobs are counted, not delayed, and told what would be",
		scopes: inMode(throttle.Shadow, throttle.Enforce, 1, 10), rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 1 * second, call: "peek", job: "a2", keys: "tenant=a", want: "granted 1s; shadow tenant a 1/10s until 10s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "granted 1s; shadow tenant a 1/10s until 10s"},
			{at: 1 * second, call: "usage", job: "tenant a", want: "2 used, 0 booked, free 11s"},
			{at: 1 * second, call: "inforce", job: "tenant a", want: "1/10s of the configuration, shadow"},
			// it would never
			{at: 2 * second, job: "a3", keys: "tenant=a", weight: 5, want: "granted 2s; shadow tenant a 1/10s until never"},
			{at: 2 * second, job: "b1", keys: "tenant=b", want: "granted 2s"},
			{at: 3 * second, job: "b2", keys: "tenant=b", weight: 3, want: "booked 10s, global 10/10s"}, // that one is in force
			{at: 10 * second, job: "b2", keys: "tenant=b", weight: 3, want: "granted 10s; shadow tenant b 1/10s until never"},
		}},
	{name: "the whole throttle in shadow", scopes: global(per10s(1)), mode: throttle.Shadow, rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "granted 1s; shadow global 1/10s until 10s"},
		{at: 1 * second, call: "inforce", job: "global", want: "1/10s of the configuration, shadow"},
		{at: 1 * second, call: "pause", job: "global", until: 5 * second, want: "until 5s"},
		{at: 2 * second, job: "c", want: "granted 2s; shadow global 1/10s until 11s"},
		{at: 2 * second, call: "settle", job: "c", actual: 0, want: "true"},
		{at: 2 * second, call: "usage", job: "global", want: "2 used, 0 booked, free 11s"},
		{at: 2 * second, call: "limits", job: "global", text: "0/10s", want: "done"},
		{at: 3 * second, job: "d", want: "granted 3s; shadow global 0/10s until never"},
	}},
	{name: "a mode that ends by itself", scopes: global(per10s(1)), rows: []row{
		{at: 0, call: "mode", job: "global", text: "shadow", until: 5 * second, want: "done"},
		{at: 0, call: "mode", job: "", text: "off", until: 2 * second, want: "done"},
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", want: "granted 1s; shadow global 1/10s until 10s"},
		{at: 5 * second, call: "inforce", job: "global", want: "1/10s of the configuration, enforce"},
		{at: 5 * second, job: "c", want: "booked 11s, global 1/10s"},
		{at: 6 * second, call: "mode", job: "", text: "off", until: 7 * second, want: "done"},
		{at: 6 * second, job: "d", want: "granted 6s"},
		{at: 7 * second, job: "e", want: "booked 21s, global 1/10s"},
	}},
	{name: "off counts nothing and holds nobody", scopes: global(per10s(1)), mode: throttle.Off, rows: []row{
		{at: 0, job: "a", want: "granted 0s"},
		{at: 0, job: "b", weight: 5, want: "granted 0s"},
		{at: 0, call: "usage", job: "global", want: "0 used, 0 booked, free 0s"},
		{at: 0, call: "inforce", job: "global", want: "1/10s of the configuration, off"},
		{at: 0, call: "pause", job: "global", until: 5 * second, want: "until 5s"},
		{at: 1 * second, job: "c", want: "granted 1s"},
		{at: 1 * second, call: "mode", job: "global", text: "enforce", want: "done"},
		{at: 1 * second, job: "d", want: "booked 5s, global paused"},
		{at: 1 * second, call: "usage", job: "global", want: "0 used, 1 booked, free 15s"},
	}},
	{name: "a scope is off, the others are in force", scopes: inMode(throttle.Off, throttle.Enforce, 1, 3), rows: []row{
		{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
		{at: 0, job: "a2", keys: "tenant=a", want: "granted 0s"},
		{at: 1 * second, job: "b1", keys: "tenant=b", want: "booked 10s, global 3/10s"},
		{at: 1 * second, call: "usage", job: "tenant a", want: "0 used, 0 booked, free 1s"},
	}},
	{name: "the weaker of scope and throttle holds", scopes: inMode(throttle.Off, throttle.Enforce, 1, 1),
		mode: throttle.Shadow, rows: []row{
			{at: 0, call: "inforce", job: "tenant a", want: "1/10s of the configuration, off"},
			{at: 0, call: "inforce", job: "domain x", want: "100/10s of the configuration, shadow"},
			{at: 0, call: "inforce", job: "global", want: "1/10s of the configuration, shadow"},
			{at: 0, job: "a1", keys: "tenant=a domain=x", weight: 2, want: "granted 0s; shadow global 1/10s until never"},
		}},
	{name: "F60 what is set at run time wins over the configuration",
		scopes: inMode(throttle.Shadow, throttle.Enforce, 1, 10), rows: []row{
			{at: 0, call: "mode", job: "tenant", text: "enforce", want: "done"},
			{at: 0, call: "inforce", job: "tenant a", want: "1/10s of the configuration, enforce"},
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "booked 10s, tenant a 1/10s"},
			{at: 2 * second, call: "mode", text: "off", want: "done"}, // of those that have none set
			{at: 2 * second, call: "inforce", job: "tenant a", want: "1/10s of the configuration, enforce"},
			{at: 2 * second, call: "inforce", job: "global", want: "10/10s of the configuration, off"},
			{at: 2 * second, call: "mode", job: "tenant", want: "done"},
			{at: 2 * second, call: "inforce", job: "tenant a", want: "1/10s of the configuration, off"},
			{at: 2 * second, job: "a3", keys: "tenant=a", weight: 20, want: "granted 2s"},
			{at: 3 * second, call: "mode", want: "done"},
			{at: 3 * second, call: "inforce", job: "tenant a", want: "1/10s of the configuration, shadow"},
			{at: 3 * second, call: "usage", job: "tenant a", want: "1 used, 1 booked, free 20s"}, // a3 was not counted
		}},
	{name: "F60 shadow, then enforced with what shadow has counted",
		scopes: inMode(throttle.Shadow, throttle.Shadow, 2, 10), rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", weight: 2, want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "granted 1s; shadow tenant a 2/10s until 10s"},
			{at: 2 * second, call: "mode", text: "enforce", want: "done"},
			{at: 2 * second, job: "a3", keys: "tenant=a", want: "booked 10s, tenant a 2/10s"},
			{at: 2 * second, job: "a4", keys: "tenant=a", weight: 3,
				want: "throttle: weight 3 can never start under the tenant limit 2/10s"},
			{at: 3 * second, call: "mode", text: "shadow", want: "done"},
			{at: 3 * second, job: "a3", keys: "tenant=a", want: "booked 10s"}, // it keeps its slot
			{at: 3 * second, job: "a5", keys: "tenant=a", weight: 3, want: "granted 3s; shadow tenant a 2/10s until never"},
			{at: 10 * second, job: "a3", keys: "tenant=a", want: "granted 10s; shadow tenant a 2/10s until 13s"},
		}},
	{name: "the line empties when its limit goes into shadow", scopes: tenantAndDomain(100, 100, 1),
		lookahead: second, rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 1 * second, job: "a2", keys: "tenant=a", want: "waiting, 0 ahead"},
			{at: 1 * second, job: "b1", keys: "tenant=b", want: "waiting, 0 ahead"},
			{at: 1 * second, call: "pull", want: "nothing"},
			{at: 2 * second, call: "mode", job: "global", text: "shadow", want: "done"},
			{at: 2 * second, call: "pull", want: "booked a2 2s, b1 2s"},
			{at: 2 * second, job: "a2", keys: "tenant=a", want: "granted 2s; shadow global 1/10s until 12s"},
		}},
	{name: "a pause in shadow holds nobody, enforced it does", scopes: tenantAndDomain(5, 5, 5), rows: []row{
		{at: 0, call: "pause", job: "tenant a", until: 10 * second, want: "until 10s"},
		{at: 0, call: "mode", job: "tenant", text: "shadow", want: "done"},
		{at: 1 * second, job: "a1", keys: "tenant=a", want: "granted 1s; shadow tenant a paused until 10s"},
		{at: 1 * second, call: "inforce", job: "tenant a", want: "5/10s of the configuration, shadow, paused until 10s"},
		{at: 2 * second, call: "mode", job: "tenant", text: "off", want: "done"},
		{at: 2 * second, job: "a2", keys: "tenant=a", want: "granted 2s"},
		{at: 3 * second, call: "mode", job: "tenant", want: "done"},
		{at: 3 * second, job: "a3", keys: "tenant=a", want: "booked 10s, tenant a paused"},
	}},
	{name: "limits set at run time, in shadow first", scopes: tenantAndDomain(5, 5, 5), rows: []row{
		{at: 0, call: "mode", job: "tenant", text: "shadow", want: "done"},
		{at: 0, call: "limits", job: "tenant a", text: "1/20s", want: "done"},
		{at: 0, call: "inforce", job: "tenant a", want: "1/20s of the key, shadow"},
		{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
		{at: 1 * second, job: "a2", keys: "tenant=a", want: "granted 1s; shadow tenant a 1/20s until 20s"},
		{at: 2 * second, call: "mode", job: "tenant", want: "done"},
		{at: 2 * second, job: "a3", keys: "tenant=a", want: "booked 21s, tenant a 1/20s"},
	}},
	{name: "a plan books what has room at once", scopes: global(per10s(2)), rows: []row{
		{at: 0, job: "a", plan: true, want: "booked 0s"},
		{at: 0, call: "usage", job: "global", want: "0 used, 1 booked, free 0s"},
		{at: 0, job: "a", want: "granted 0s"},
		{at: 1 * second, job: "b", plan: true, wait: 5 * second, want: "booked 1s"},
		{at: 1 * second, job: "c", plan: true, want: "booked 10s, global 2/10s"},
		{at: 1 * second, call: "peek", job: "d", plan: true, want: "booked 11s, global 2/10s"},
		{at: 1 * second, call: "pull", want: "booked c 10s"}, // who brings jobs hears of it, once
		{at: 2 * second, call: "pull", want: "nothing"},
		{at: 2 * second, job: "b", want: "granted 2s"},
		{at: 3 * second, job: "c", plan: true, want: "booked 10s, global 2/10s"}, // the same slot
		{at: 10 * second, job: "c", want: "granted 10s"},
	}},
	{name: "a plan that nobody comes for stops counting after its grace", scopes: global(per10s(1)), rows: []row{
		{at: 0, job: "a", plan: true, want: "booked 0s"},
		{at: 5 * second, call: "usage", job: "global", want: "0 used, 1 booked, free 15s"},
		{at: 5*second + micro, call: "usage", job: "global", want: "0 used, 0 booked, free 5.000001s"},
		{at: 5*second + micro, job: "b", plan: true, want: "booked 5.000001s"},
		{at: 6 * second, call: "cancel", job: "b", want: "true"},
		{at: 6 * second, call: "usage", job: "global", want: "0 used, 0 booked, free 6s"},
	}},
	{name: "a plan stands in line, and has a deadline", scopes: tenantAndDomain(100, 100, 1), lookahead: second,
		rows: []row{
			{at: 0, job: "a1", keys: "tenant=a", plan: true, want: "booked 0s"},
			{at: 0, job: "a2", keys: "tenant=a", plan: true, want: "waiting, 0 ahead"},
			{at: 0, job: "a3", keys: "tenant=a", plan: true, deadline: 5 * second, want: "too late, 10s, global 1/10s"},
			{at: 0, call: "pull", want: "nothing"},
			{at: 0, job: "a1", keys: "tenant=a", want: "granted 0s"},
			{at: 9 * second, call: "pull", want: "booked a2 10s"},
			{at: 10 * second, job: "a2", keys: "tenant=a", want: "granted 10s"},
		}},
}
