package try

import (
	"cmp"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// played is how one side went.
type played struct {
	starts   []start
	putBacks int
}

// start is when a job started, after the beginning.
type start struct {
	job int // its index
	at  time.Duration
}

// last returns when the last job started.
func (s played) last() (at time.Duration) {
	for _, one := range s.starts {
		at = max(at, one.at)
	}
	return at
}

// Side is how a backlog went on one side of the comparison. Times are in seconds.
type Side struct {
	Started  int     `json:"started"`   // jobs
	Last     float64 `json:"last"`      // when the last one started, after the beginning
	PutBacks float64 `json:"put_backs"` // per job
	Fullest  float64 `json:"fullest"`   // the fullest window, period or instant of any limit, as a part of the limit
	Over     int     `json:"over"`      // windows, periods and instants over their limit, and starts outside of hours
	Waits    []Waits `json:"waits"`     // by tenant
}

// Waits are those of the jobs of a tenant that started, in seconds.
type Waits struct {
	Tenant  string  `json:"tenant"`
	Jobs    int     `json:"jobs"`    // all
	Started int     `json:"started"` // of these
	Median  float64 `json:"median"`
	Longest float64 `json:"longest"`
}

// side sums up how one side went, but for Fullest.
func (p *plan) side(of played) Side {
	return Side{
		Started:  len(of.starts),
		Last:     of.last().Seconds(),
		PutBacks: float64(of.putBacks) / float64(len(p.jobs)),
		Over:     len(throttletest.Check(p.scopes, p.records(of))),
		Waits:    p.waits(of),
	}
}

// records are the starts as they are checked, independent of what decided.
func (p *plan) records(of played) []throttletest.Start {
	records := make([]throttletest.Start, len(of.starts))
	for i, s := range of.starts {
		j, at := &p.jobs[s.job], p.begins.Add(s.at)
		records[i] = throttletest.Start{At: at, Weight: j.Weight, Keys: j.Keys, End: at.Add(p.runs)}
	}
	return records
}

func (p *plan) waits(of played) []Waits {
	all, waited := make([]Waits, p.tenants), make([][]time.Duration, p.tenants)
	for i := range p.jobs {
		all[p.jobs[i].tenant].Jobs++
	}
	for _, s := range of.starts {
		j := &p.jobs[s.job]
		waited[j.tenant] = append(waited[j.tenant], s.at-j.comes)
	}
	for tenant := range all {
		w, own := &all[tenant], waited[tenant]
		w.Tenant, w.Started = tenantName(tenant), len(own)
		if len(own) > 0 {
			slices.Sort(own)
			w.Median, w.Longest = own[len(own)/2].Seconds(), own[len(own)-1].Seconds()
		}
	}
	return all
}

// level is how many units count under a limit from an instant on.
type level struct {
	at    time.Duration
	units int64
}

// levels returns what counts under a limit of one scope key, of starts that are in order.
func (p *plan) levels(limit throttle.Limit, starts []start) []level {
	changes := make([]level, 0, 2*len(starts))
	for _, s := range starts {
		weight := p.jobs[s.job].Weight
		changes = append(changes, level{s.at, weight}, level{p.leaves(limit, s.at), -weight})
	}
	slices.SortFunc(changes, func(a, b level) int { // a start that leaves makes room for one of this instant
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units))
	})
	units := int64(0)
	for i := range changes {
		units += changes[i].units
		changes[i].units = units
	}
	return changes
}

// leaves returns until when a start counts under a limit.
func (p *plan) leaves(limit throttle.Limit, at time.Duration) time.Duration {
	switch {
	case limit.Running:
		return at + p.runs
	case limit.Window > 0:
		return at + limit.Window
	}
	_, ends := limit.Calendar.Period(p.begins.Add(at))
	return ends.Sub(p.begins)
}

// byKey returns the starts under each key of a scope, in order.
func (p *plan) byKey(scope string, starts []start) map[string][]start {
	keys := make(map[string][]start)
	for _, s := range starts {
		key := p.jobs[s.job].Keys[scope]
		keys[key] = append(keys[key], s)
	}
	for _, own := range keys {
		slices.SortStableFunc(own, func(a, b start) int { return cmp.Compare(a.at, b.at) })
	}
	return keys
}
