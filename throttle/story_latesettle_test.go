package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestSharesOfLateSettlements: a tenant's jobs are charged ten times what they take, and settled ten seconds after
// their starts. While they run, their tenant is behind by what they will give back; it is not left behind for good.
func TestSharesOfLateSettlements(t *testing.T) {
	t.Parallel()
	const backlog, tick = 60, 100 * time.Millisecond
	scopes := append(globalScope(throttle.Per(100, 10*time.Second)), throttle.Scope{Name: "tenant"})
	e := &estimated{t: t, now: dawn, started: make(map[string]int),
		subject: throttletest.NewModel(scopes, throttle.Options{Lookahead: time.Second})}
	for range 3000 {
		e.arrive("estimates", backlog, 10)
		e.arrive("knows", backlog, 1)
		e.now = e.now.Add(tick)
		e.settle(10 * time.Second)
		e.pull()
	}
	if e.started["estimates"] < e.started["knows"]/2 {
		t.Errorf("started: %v; want at least half as many of the tenant whose jobs are charged too much", e.started)
	}
}

// estimated are jobs of tenants, each of which takes one unit in the end.
type estimated struct {
	t       *testing.T
	subject throttletest.Subject
	now     time.Time
	jobs    int
	waiting []throttle.Job
	running []throttle.Reservation
	started map[string]int // by tenant
}

// arrive brings jobs of a tenant until so many of them wait.
func (e *estimated) arrive(tenant string, most int, weight int64) {
	for _, job := range e.waiting {
		if job.Keys["tenant"] == tenant {
			most--
		}
	}
	for ; most > 0; most-- {
		e.jobs++
		e.now = e.now.Add(time.Microsecond)
		e.waiting = append(e.waiting, throttle.Job{ID: fmt.Sprint(e.jobs), Weight: weight, Keys: of(tenant)})
		e.ask(e.waiting[len(e.waiting)-1])
	}
}

// ask asks for a waiting job, which runs from its start on if it is granted.
func (e *estimated) ask(job throttle.Job) {
	job.MaxWait = time.Second
	r, err := e.subject.Reserve(e.now, job)
	if err != nil {
		e.t.Fatal(err)
	}
	if r.Outcome == throttle.Granted {
		e.started[job.Keys["tenant"]]++
		e.running = append(e.running, r)
		e.waiting = slices.DeleteFunc(e.waiting, func(other throttle.Job) bool { return other.ID == job.ID })
	}
}

// settle corrects the charges of the jobs that started so long ago.
func (e *estimated) settle(after time.Duration) {
	e.running = slices.DeleteFunc(e.running, func(r throttle.Reservation) bool {
		if e.now.Sub(r.Start) < after {
			return false
		}
		if _, err := e.subject.Settle(e.now, r, 1); err != nil {
			e.t.Fatal(err)
		}
		return true
	})
}

func (e *estimated) pull() {
	pulled, err := e.subject.Pull(e.now)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, booked := range pulled.Booked {
		for _, job := range e.waiting {
			if job.ID == booked.Job.ID {
				e.ask(job)
				break
			}
		}
	}
}
