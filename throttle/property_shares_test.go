package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPropertyShares: two tenants of which always many jobs wait start units by their shares, whatever their jobs do
// in line: they ask again and again, change their weights, leave, and come back. At its slot a job weighs what it was
// booked with or less, and comes on time: an overdue job, or one that loses its slot again and again, pays for it.
func TestPropertyShares(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { newRivals(t, client).play() })
	})
}

// rivals are the tenants of TestPropertyShares.
type rivals struct {
	t       *rapid.T
	subject *scripted
	now     time.Time
	jobs    int
	tenants []*rival
}

// rival is a tenant.
type rival struct {
	name    string
	share   int64
	fickle  bool // its jobs change their weights
	waiting []*rivalJob
	units   int64 // that it has started
}

type rivalJob struct {
	throttle.Job
	slot time.Time // zero: it waits
}

const (
	heaviestRival = 4
	backlog       = 20 // jobs of a tenant
)

func newRivals(t *rapid.T, client *redis.Client) *rivals {
	units := rapid.SampledFrom([]int64{10, 30}).Draw(t, "units")
	limits := []throttle.Limit{throttle.Per(units, 10*time.Second)}
	if rapid.Bool().Draw(t, "two windows") {
		limits = append(limits, throttle.Per(2*units, 30*time.Second))
	}
	h := &rivals{t: t, now: dawn, tenants: []*rival{{name: "a", share: 1}, {name: "b", share: 2}}}
	h.subject = newScripted(newThrottle(t, client, append(globalScope(limits...), throttle.Scope{Name: "tenant"}),
		&throttle.Options{Lookahead: time.Second, Shares: map[string]int{"b": 2}}))
	for _, r := range h.tenants {
		r.fickle = rapid.Bool().Draw(t, "fickle")
	}
	// The window is full when the tenants come: both stand in line before one of their jobs starts.
	done(t, "Reserve")(h.subject.Reserve(h.now, throttle.Job{ID: "first", Weight: units, Keys: of("c")}))
	return h
}

func (h *rivals) play() {
	for range 30 {
		for _, r := range h.tenants {
			for len(r.waiting) < backlog {
				h.arrive(r)
			}
		}
		h.now = h.now.Add(time.Second)
		h.pull()
		for _, r := range h.tenants {
			h.come(r)
			h.disturb(r)
		}
		h.compare()
	}
}

func (h *rivals) drawWeight() int64 { return rapid.Int64Range(1, heaviestRival).Draw(h.t, "weight") }

func (h *rivals) arrive(r *rival) {
	h.jobs++
	h.now = h.now.Add(time.Microsecond)
	job := throttle.Job{ID: fmt.Sprint(h.jobs), Weight: h.drawWeight(), Keys: of(r.name)}
	r.waiting = append(r.waiting, &rivalJob{Job: job})
	h.ask(r, r.waiting[len(r.waiting)-1])
}

func (h *rivals) ask(r *rival, j *rivalJob) {
	got, err := h.subject.Reserve(h.now, j.Job)
	if err != nil {
		h.t.Fatal(err)
	}
	j.slot = time.Time{}
	switch got.Outcome {
	case throttle.Booked:
		j.slot = got.Start
	case throttle.Granted:
		r.units += j.Weight
		r.waiting = slices.DeleteFunc(r.waiting, func(other *rivalJob) bool { return other == j })
	}
}

func (h *rivals) pull() {
	found, err := h.subject.Pull(h.now)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, booked := range found.Booked {
		for _, r := range h.tenants {
			for _, j := range r.waiting {
				if j.ID == booked.Job.ID {
					j.slot = booked.Start
				}
			}
		}
	}
}

// come brings the jobs whose slots have come, the fickle ones as light ones.
func (h *rivals) come(r *rival) {
	for _, j := range slices.Clone(r.waiting) {
		if j.slot.IsZero() || j.slot.After(h.now) {
			continue
		}
		if r.fickle {
			j.Weight = 1
		}
		h.ask(r, j)
	}
}

// disturb has a waiting job ask again, maybe with another weight, or leave and come back.
func (h *rivals) disturb(r *rival) {
	j := rapid.SampledFrom(r.waiting).Draw(h.t, "job")
	switch rapid.SampledFrom([]string{"", "", "ask", "leave"}).Draw(h.t, "disturbance") {
	case "ask":
		if r.fickle && j.slot.IsZero() {
			j.Weight = h.drawWeight()
		}
		h.ask(r, j)
	case "leave":
		done(h.t, "Leave")(h.subject.Leave(h.now, []string{j.ID}))
		h.ask(r, j)
	}
}

// compare compares what the tenants have started, by their shares. They differ by a few of their heaviest jobs, since
// what is booked has not started yet.
func (h *rivals) compare() {
	a, b := h.tenants[0], h.tenants[1]
	by := a.units*b.share - b.units*a.share
	if most := 5 * heaviestRival * a.share * b.share; max(by, -by) > most {
		h.t.Fatalf("started: %d units of %s (share %d), %d of %s (share %d)", a.units, a.name, a.share,
			b.units, b.name, b.share)
	}
}
