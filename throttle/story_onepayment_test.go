package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestOnePayment: two tenants have equal shares of a limit, and many jobs wait of each. The jobs of one tenant meet the
// same misfortune between their bookings and their starts. Each job that starts is paid once: both tenants start the
// same number of units. Where the misfortune leaves the room of a booking unused, or meets a job again and again, the
// other tenant still has its half of the limit.
func TestOnePayment(t *testing.T) {
	t.Parallel()
	lost := func(then func(v *victims, j *victim)) misfortune {
		return misfortune{meets: func(v *victims, j *victim) {
			v.pause()
			v.wants(j, throttle.Waiting)
			v.resume()
			then(v, j)
		}}
	}
	elsewhere := func(v *victims, j *victim) {
		j.Keys = map[string]string{"tenant": "victim", "domain": "other"}
		v.ask(j)
	}
	leaves := func(v *victims, j *victim) {
		v.leave(j)
		v.ask(j)
	}
	nothing := func(*victims, *victim) {}
	asks := func(v *victims, j *victim) { v.ask(j) }
	heavy, again := lost(nothing), lost(nothing)
	heavy.weight, again.always = 15, true
	for name, m := range map[string]misfortune{
		"none": {},

		"a pause takes the slot":           lost(nothing),
		"a pause takes a heavy job's slot": heavy,
		"lowered limits take the slot": {meets: func(v *victims, j *victim) {
			v.limit(throttle.Per(0, 2*time.Second))
			v.wants(j, throttle.Waiting)
			v.limit()
		}},
		"a pause takes the slot of a job that weighs more now, and less then": {meets: func(v *victims, j *victim) {
			j.Weight = 3
			v.pause()
			v.wants(j, throttle.Waiting)
			v.resume()
			j.Weight = 1
		}},
		"the slot is lost, and the job leaves":          lost(leaves),
		"the slot is lost, and the job moves elsewhere": lost(elsewhere),
		"the slot is lost, and the deadline passes": lost(func(v *victims, j *victim) {
			v.misses(j, v.now.Add(-time.Second))
			v.ask(j)
		}),
		"the slot is lost, and the next is after the deadline": {meets: func(v *victims, j *victim) {
			v.pause()
			v.misses(j, v.now)
			v.resume()
			v.ask(j)
		}},
		"the slot is lost again and again": again,

		"the deadline has passed at the slot": {meets: func(v *victims, j *victim) {
			v.misses(j, v.now.Add(-time.Second))
			v.ask(j)
		}},
		"a booked job leaves":          {meets: leaves},
		"a booked job moves elsewhere": {meets: elsewhere},
		"a booked job is canceled": {meets: func(v *victims, j *victim) {
			_, err := v.subject.Cancel(v.now, j.Job)
			v.fine(err)
			v.ask(j)
		}},
		"another process plans a booked job": {meets: func(v *victims, j *victim) {
			plan := j.Job
			plan.Plan = true
			_, err := v.subject.Reserve(v.now, plan)
			v.fine(err)
			v.ask(j)
		}},
		"a claim moves": {weight: 15, meets: func(v *victims, _ *victim) {
			v.limit(throttle.Per(0, 2*time.Second))
			v.pull()
			v.limit()
			v.pull()
		}},
		"a grant is released": {early: true, meets: func(v *victims, j *victim) {
			early := j.Job
			early.MaxWait = time.Second
			r, err := v.subject.Reserve(v.now, early)
			v.fine(err)
			_, err = v.subject.Release(v.now, r)
			v.fine(err)
			j.Start = r.Start.Add(time.Microsecond)
		}},

		"the job is overdue":                      {overdue: true, meets: asks},
		"the job is overdue again and again":      {overdue: true, always: true, meets: asks},
		"the job is overdue, and leaves":          {overdue: true, meets: leaves},
		"the job is overdue, and moves elsewhere": {overdue: true, meets: elsewhere},
		"the job is overdue, and finds no room":   {overdue: true, meets: lost(nothing).meets},
		"the job is overdue, and weighs less": {weight: 3, overdue: true, meets: func(v *victims, j *victim) {
			j.Weight = 1
			v.ask(j)
		}},
		"the job is thrown out, and fits again": {weight: 2, thrown: true, meets: asks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newVictims(t, m).play()
		})
	}
}

// misfortune is what each job of a tenant meets.
type misfortune struct {
	weight  int64 // of the tenant's jobs; 0: 1
	early   bool  // jobs meet it when they are booked, else at their slots
	overdue bool  // jobs meet it when they are overdue
	always  bool  // jobs meet it again and again, not once
	thrown  bool  // jobs meet it when a pull has thrown them out, while limits were lower than their weight
	meets   func(v *victims, j *victim)
}

// victims are the jobs that wait, and what has started.
type victims struct {
	t       *testing.T
	subject throttletest.Subject
	m       misfortune
	now     time.Time
	jobs    int
	waiting []*victim
	overdue []*victim
	started map[string]int64 // units, by tenant
}

// victim is a job that waits; Start is its slot, zero if it is not booked.
type victim struct {
	throttle.Job
	Start time.Time
	met   bool // it has met its misfortune, or meets none
}

func newVictims(t *testing.T, m misfortune) *victims {
	m.weight = max(1, m.weight)
	scopes := append(globalScope(throttle.Per(20, 2*time.Second)),
		throttle.Scope{Name: "tenant", Limits: []throttle.Limit{throttle.Per(100, 2*time.Second)}},
		throttle.Scope{Name: "domain", Optional: true})
	v := &victims{t: t, m: m, now: dawn, started: make(map[string]int64),
		subject: throttletest.NewModel(scopes, throttle.Options{Lookahead: time.Second, Grace: time.Second})}
	// The window is full when the tenants come: both stand in line before one of their jobs starts.
	_, err := v.subject.Reserve(v.now, throttle.Job{ID: "first", Weight: 20, Keys: of("c")})
	v.fine(err)
	return v
}

func (v *victims) fine(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

func (v *victims) play() {
	for tick := range 400 {
		v.arrive("victim", v.m.weight)
		v.arrive("other", 1)
		v.now = v.now.Add(100 * time.Millisecond)
		if v.m.thrown && tick%20 == 5 {
			v.limit(throttle.Per(1, 2*time.Second))
			v.pull()
			v.limit()
			v.bringOverdue()
		}
		v.pull()
		v.bringOverdue()
		for _, j := range slices.Clone(v.waiting) {
			if !j.Start.IsZero() {
				v.come(j)
			}
		}
	}
	victim, other := v.started["victim"], v.started["other"]
	v.t.Logf("%d units of the victim started, %d of the other tenant", victim, other)
	half := (victim + other) / 2
	if v.m.overdue || v.m.always {
		half = 200 // of what the limit allows
	}
	most := 10 + v.m.weight // Some units are booked.
	if other < half-most || !v.m.overdue && !v.m.always && victim < half-most {
		v.t.Errorf("%d units of the victim started, %d of the other tenant; want %d of each", victim, other, half)
	}
}

// arrive brings jobs of a tenant until 30 of them wait.
func (v *victims) arrive(tenant string, weight int64) {
	n := 0
	for _, j := range v.waiting {
		if j.Keys["tenant"] == tenant {
			n++
		}
	}
	for ; n < 30; n++ {
		v.jobs++
		v.now = v.now.Add(time.Microsecond)
		j := &victim{Job: throttle.Job{ID: fmt.Sprint(v.jobs), Weight: weight, Keys: of(tenant)},
			met: tenant == "other" || v.m.meets == nil}
		v.waiting = append(v.waiting, j)
		v.ask(j)
	}
}

// come has a booked job ask at its slot, unless it meets its misfortune.
func (v *victims) come(j *victim) {
	arrives := !j.Start.After(v.now)
	switch {
	case arrives && (j.met || v.m.thrown):
		v.ask(j)
	case !j.met && !v.m.overdue && (arrives || v.m.early):
		v.meet(j)
	}
}

func (v *victims) bringOverdue() {
	for _, j := range v.overdue {
		if j.met {
			v.ask(j)
		} else {
			v.meet(j)
		}
	}
	v.overdue = nil
}

func (v *victims) meet(j *victim) {
	j.met = !v.m.always
	v.m.meets(v, j)
}

func (v *victims) ask(j *victim) throttle.Outcome {
	v.t.Helper()
	r, err := v.subject.Reserve(v.now, j.Job)
	v.fine(err)
	j.Start = time.Time{}
	switch r.Outcome {
	case throttle.Booked:
		j.Start = r.Start
	case throttle.Granted:
		v.started[j.Keys["tenant"]] += j.Weight
		v.waiting = slices.DeleteFunc(v.waiting, func(other *victim) bool { return other == j })
	}
	return r.Outcome
}

func (v *victims) wants(j *victim, want throttle.Outcome) {
	v.t.Helper()
	if got := v.ask(j); got != want {
		v.t.Fatalf("answer %v, want %v", got, want)
	}
}

// misses has a job come with a deadline that it cannot meet.
func (v *victims) misses(j *victim, deadline time.Time) {
	v.t.Helper()
	late := j.Job
	late.Deadline = deadline
	if _, err := v.subject.Reserve(v.now, late); err == nil {
		v.t.Fatal("no error, want a *DeadlineError")
	}
}

func (v *victims) leave(j *victim) {
	v.t.Helper()
	_, err := v.subject.Leave(v.now, []string{j.ID})
	v.fine(err)
}

func (v *victims) pause() {
	v.t.Helper()
	_, err := v.subject.Pause(v.now, "tenant", "victim", v.now.Add(time.Minute))
	v.fine(err)
}

func (v *victims) resume() {
	v.t.Helper()
	_, err := v.subject.Resume(v.now, "tenant", "victim")
	v.fine(err)
}

// limit sets limits of the victim's tenant, or takes them back if there are none.
func (v *victims) limit(limits ...throttle.Limit) {
	v.t.Helper()
	if len(limits) == 0 {
		v.fine(v.subject.ResetLimits(v.now, "tenant", "victim"))
		return
	}
	v.fine(v.subject.SetLimits(v.now, "tenant", "victim", limits, time.Time{}))
}

func (v *victims) pull() {
	v.t.Helper()
	pulled, err := v.subject.Pull(v.now)
	v.fine(err)
	for _, booked := range pulled.Booked {
		if j := v.find(booked.Job.ID); j != nil {
			j.Start = booked.Start
		}
	}
	for _, overdue := range pulled.Overdue {
		if j := v.find(overdue.Job.ID); j != nil {
			v.overdue = append(v.overdue, j)
		}
	}
}

func (v *victims) find(id string) *victim {
	for _, j := range v.waiting {
		if j.ID == id {
			return j
		}
	}
	return nil
}
