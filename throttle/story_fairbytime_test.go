package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestFairByTimeOfManyShortJobs: many jobs of a tenant end at once, long before the second for which each has paid at
// its start. The tenant gets all that back, and its share of the places.
func TestFairByTimeOfManyShortJobs(t *testing.T) {
	t.Parallel()
	const places, tick = 30, 100 * time.Millisecond
	scopes := append(globalScope(throttle.Running(places)), throttle.Scope{Name: "tenant"})
	p := &placeHolders{t: t, now: dawn, seconds: make(map[string]time.Duration),
		lasts:   map[string]time.Duration{"short": 3 * tick, "long": 70 * tick},
		subject: throttletest.NewModel(scopes, throttle.Options{Lookahead: time.Second, FairByTime: true})}
	for range 300 {
		p.arrive("short", places)
		p.arrive("long", places)
		p.now = p.now.Add(tick)
		p.pull(tick)
	}
	short, long := p.seconds["short"], p.seconds["long"]
	if short < long*8/10 || long < short*8/10 {
		t.Errorf("jobs occupied places for %s where they are short, for %s where they are long; want equal times",
			short, long)
	}
}

// placeHolders are jobs of tenants that wait for places and occupy them.
type placeHolders struct {
	t       *testing.T
	subject throttletest.Subject
	now     time.Time
	jobs    int
	lasts   map[string]time.Duration // how long the jobs of a tenant run
	waiting []throttle.Job
	running []throttle.Reservation
	seconds map[string]time.Duration // for which the jobs of a tenant have occupied places
}

// arrive brings jobs of a tenant until so many of them wait.
func (p *placeHolders) arrive(tenant string, most int) {
	for _, job := range p.waiting {
		if job.Keys["tenant"] == tenant {
			most--
		}
	}
	for ; most > 0; most-- {
		p.jobs++
		p.now = p.now.Add(time.Microsecond)
		job := throttle.Job{ID: fmt.Sprint(p.jobs), Weight: 1, Keys: of(tenant)}
		p.waiting = append(p.waiting, job)
		p.ask(job)
	}
}

// ask asks for a waiting job, which runs from now on if it is granted.
func (p *placeHolders) ask(job throttle.Job) {
	r, err := p.subject.Reserve(p.now, job)
	if err != nil {
		p.t.Fatal(err)
	}
	if r.Outcome == throttle.Granted {
		p.running = append(p.running, r)
		p.waiting = slices.DeleteFunc(p.waiting, func(other throttle.Job) bool { return other.ID == job.ID })
	}
}

// pull ends the jobs that have run for long enough, after a tick, and has the next ones start.
func (p *placeHolders) pull(tick time.Duration) {
	var still, ended []throttle.Reservation
	for _, r := range p.running {
		tenant := r.Job.Keys["tenant"]
		p.seconds[tenant] += tick
		if p.now.Sub(r.Start) < p.lasts[tenant] {
			still = append(still, r)
		} else {
			ended = append(ended, r)
		}
	}
	p.running = still
	pulled, err := p.subject.Pull(p.now, ended...)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, booked := range pulled.Booked {
		for _, job := range p.waiting {
			if job.ID == booked.Job.ID {
				p.ask(job)
				break
			}
		}
	}
}
