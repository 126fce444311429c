package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// backlogs are jobs of tenants that wait in line, and those that run.
type backlogs struct {
	t       *testing.T
	subject throttletest.Subject
	now     time.Time
	jobs    int
	waiting []throttle.Job
	running []throttle.Reservation
	started map[string]int // by tenant
}

func newBacklogs(t *testing.T, scopes []throttle.Scope, options throttle.Options) *backlogs {
	return &backlogs{t: t, subject: throttletest.NewModel(scopes, options), now: dawn, started: make(map[string]int)}
}

// arrive brings jobs of a tenant until so many of them wait.
func (b *backlogs) arrive(tenant string, most int, weight int64) {
	for _, job := range b.waiting {
		if job.Keys["tenant"] == tenant {
			most--
		}
	}
	for ; most > 0; most-- {
		b.jobs++
		b.now = b.now.Add(time.Microsecond)
		job := throttle.Job{ID: fmt.Sprint(b.jobs), Weight: weight, Keys: of(tenant), MaxWait: time.Second}
		b.waiting = append(b.waiting, job)
		b.ask(job)
	}
}

// ask asks for a waiting job, which runs if it is granted.
func (b *backlogs) ask(job throttle.Job) {
	r, err := b.subject.Reserve(b.now, job)
	if err != nil {
		b.t.Fatal(err)
	}
	if r.Outcome == throttle.Granted {
		b.started[job.Keys["tenant"]]++
		b.running = append(b.running, r)
		b.waiting = slices.DeleteFunc(b.waiting, func(other throttle.Job) bool { return other.ID == job.ID })
	}
}

// end ends the jobs that have run for as long as a function says, and returns them.
func (b *backlogs) end(lasts func(tenant string) time.Duration) (ended []throttle.Reservation) {
	b.running = slices.DeleteFunc(b.running, func(r throttle.Reservation) bool {
		if b.now.Sub(r.Start) < lasts(r.Job.Keys["tenant"]) {
			return false
		}
		ended = append(ended, r)
		return true
	})
	return ended
}

// pull gives back the places of jobs that have ended, and asks for the jobs that are booked.
func (b *backlogs) pull(ended ...throttle.Reservation) {
	pulled, err := b.subject.Pull(b.now, ended...)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, booked := range pulled.Booked {
		i := slices.IndexFunc(b.waiting, func(job throttle.Job) bool { return job.ID == booked.Job.ID })
		if i >= 0 {
			b.ask(b.waiting[i])
		}
	}
}
