package try

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The bounds of what is played.
const (
	mostTenants = 50
	mostJobs    = 3000
	mostKeys    = 1000
	mostRuns    = 24 * time.Hour
	mostSpan    = 14 * 24 * time.Hour
	spanText    = "14 days"
	mostNumber  = 1_000_000_000 // of jobs of a tenant, and of units of a job
	mostShare   = 1_000_000
)

// tenantScope is the fair scope.
const tenantScope = "tenant"

// plan is an Input that has been read and checked.
type plan struct {
	begins  time.Time
	scopes  []throttle.Scope
	options throttle.Options
	tenants int
	jobs    []job // in the order in which they come
	runs    time.Duration
	closed  incident
	notes   []string // what was cut
}

// job is one job of the backlog.
type job struct {
	throttle.Job
	tenant int
	turn   int           // among the tenant's jobs
	comes  time.Duration // after the beginning
}

// incident closes a scope key for a while.
type incident struct {
	scope, key  string
	from, until time.Duration // after the beginning; the same: there is none
}

// concerns reports whether a job comes under the scope key.
func (c incident) concerns(j *job) bool {
	return c.scope == throttle.Global || j.Keys[c.scope] == c.key
}

// planOf reads an Input. The error is a *FieldError.
func planOf(in Input) (*plan, error) {
	p := &plan{options: throttle.Options{Shares: make(map[string]int), Logger: zap.NewNop()}}
	tenants, err := number("tenants", in.Tenants, 1, 1, mostTenants)
	if err != nil {
		return nil, err
	}
	p.tenants = int(tenants)
	for _, read := range []func(Input) error{p.readTimes, p.readScopes, p.readShares, p.readJobs} {
		if err := read(in); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plan) readTimes(in Input) (err error) {
	if p.begins, err = instant("begins", in.Begins); err != nil {
		return err
	}
	if p.runs, err = duration("runs", in.Runs, mostRuns); err != nil {
		return err
	}
	if p.closed.from, err = duration("from", in.From, mostSpan); err != nil {
		return err
	}
	if p.closed.until, err = duration("until", in.Until, mostSpan); err != nil {
		return err
	}
	if p.closed.until != 0 && p.closed.until < p.closed.from {
		return wrong("until", "the incident ends at %s, before it begins at %s", p.closed.until, p.closed.from)
	}
	if p.closed.until == 0 {
		p.closed.from = 0
	}
	switch cmp.Or(in.Paused, throttle.Global) {
	case throttle.Global:
		p.closed.scope = throttle.Global
	case tenantScope:
		p.closed.scope, p.closed.key = tenantScope, tenantName(0)
	default:
		return wrong("paused", "%q is neither %s nor %s", in.Paused, throttle.Global, tenantScope)
	}
	return nil
}

// readScopes reads the limits. Each scope is checked by itself, so that an error names its field.
func (p *plan) readScopes(in Input) error {
	if err := p.addScope("global", throttle.Global, in.Global); err != nil {
		return err
	}
	if err := p.addScope("tenant", tenantScope, in.Tenant); err != nil {
		return err
	}
	switch in.Scope {
	case "":
	case throttle.Global, tenantScope:
		return wrong("scope", "%q has its own field", in.Scope)
	default:
		if err := check(throttle.Scope{Name: in.Scope}); err != nil {
			return wrong("scope", "%v", err)
		}
		if err := p.addScope("limits", in.Scope, in.Limits); err != nil {
			return err
		}
	}
	if err := check(p.scopes...); err != nil {
		return wrong("limits", "%v", err)
	}
	return nil
}

func (p *plan) addScope(field, name, text string) error {
	scope := throttle.Scope{Name: name, Runs: p.runs}
	if text != "" {
		var err error
		if scope.Limits, err = throttle.ParseLimits(text); err != nil {
			return wrong(field, "%v", err)
		}
	}
	if err := check(scope); err != nil {
		return wrong(field, "%v", err)
	}
	p.scopes = append(p.scopes, scope)
	return nil
}

// unused is the client of a throttle that is only checked.
type unused struct{ redis.Scripter }

// check returns why no throttle may have these scopes.
func check(scopes ...throttle.Scope) error {
	_, err := throttle.New("try", unused{}, scopes, nil)
	return err
}

func (p *plan) readShares(in Input) error {
	shares, err := numbers("shares", in.Shares, 1, 1, mostShare)
	if err != nil {
		return err
	}
	for tenant := range p.tenants {
		p.options.Shares[tenantName(tenant)] = int(shares.of(tenant))
	}
	return nil
}

func (p *plan) readJobs(in Input) error {
	counts, err := numbers("jobs", in.Jobs, 100, 0, mostNumber)
	if err != nil {
		return err
	}
	weights, err := numbers("weight", in.Weight, 1, 1, mostNumber)
	if err != nil {
		return err
	}
	perSecond, err := rates("per_second", in.PerSecond)
	if err != nil {
		return err
	}
	keys, err := number("keys", in.Keys, 1, 1, mostKeys)
	if err != nil {
		return err
	}
	var all int64
	for tenant := range p.tenants {
		count := counts.of(tenant)
		all += count
		p.addJobs(tenant, int(min(count, mostJobs)), weights.of(tenant), perSecond.of(tenant))
	}
	p.order(in.Scope, int(keys))
	if all > int64(len(p.jobs)) {
		p.note("Only the first %d of %d jobs are played: at most %d, and none that comes later than after %s.",
			len(p.jobs), all, mostJobs, spanText)
	}
	if len(p.jobs) == 0 {
		return wrong("jobs", "no tenant has a job")
	}
	return nil
}

// addJobs adds the jobs of a tenant.
func (p *plan) addJobs(tenant, count int, weight int64, perSecond float64) {
	for n := range count {
		j := job{tenant: tenant, turn: n, Job: throttle.Job{Weight: weight, MaxWait: maxWait}}
		if perSecond > 0 {
			seconds := float64(n) / perSecond
			if seconds > mostSpan.Seconds() {
				return
			}
			j.comes = time.Duration(seconds * float64(time.Second)).Truncate(time.Microsecond)
		}
		p.jobs = append(p.jobs, j)
	}
}

// order keeps as many jobs as are played, of each tenant as many if they come at the same time, and puts them into the
// order in which they come: at the same time those of the first tenant, then those of the second. Jobs take the keys of
// the further scope in turn.
func (p *plan) order(scope string, keys int) {
	slices.SortFunc(p.jobs, func(a, b job) int {
		return cmp.Or(cmp.Compare(a.comes, b.comes), cmp.Compare(a.turn, b.turn), cmp.Compare(a.tenant, b.tenant))
	})
	p.jobs = p.jobs[:min(len(p.jobs), mostJobs)]
	slices.SortFunc(p.jobs, func(a, b job) int {
		return cmp.Or(cmp.Compare(a.comes, b.comes), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.turn, b.turn))
	})
	for i := range p.jobs {
		j := &p.jobs[i]
		j.ID, j.Keys = strconv.Itoa(i), map[string]string{tenantScope: tenantName(j.tenant)}
		if scope != "" {
			j.Keys[scope] = "k" + strconv.Itoa(i%keys+1)
		}
	}
}

// tenantName is the key of a tenant, counted from 0.
func tenantName(tenant int) string { return "t" + strconv.Itoa(tenant+1) }

func (p *plan) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}
