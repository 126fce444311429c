package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestPropertyPromises: whatever newcomers arrive and whoever cancels, a job that
// comes at its slot starts at its slot. All jobs together keep the limits, and a
// new job's delay is minimal: a microsecond earlier it would not fit.
func TestPropertyPromises(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { promises(t, client) })
	})
}

func promises(t *rapid.T, client *redis.Client) {
	scopes := drawScopes(t)
	h := &machine{scopes: scopes}
	subject := newScripted(newThrottle(t, client, scopes,
		&throttle.Options{Lookahead: maxWindow, Timeout: 30 * time.Second}))
	now := historiesBegin
	var waiting []throttle.Reservation
	var starts []throttletest.Start
	keep := func(r throttle.Reservation) {
		if r.Outcome == throttle.Booked {
			waiting = append(waiting, r)
			slices.SortStableFunc(waiting, func(a, b throttle.Reservation) int { return a.Start.Compare(b.Start) })
			return
		}
		starts = append(starts, throttletest.Start{At: r.Start, Weight: r.Job.Weight, Keys: r.Job.Keys})
	}
	limits := make(map[string][]throttle.Limit)
	for i, scope := range scopes {
		scopes[i].Limits = slices.Clone(scope.Limits)
		limits[scope.Name] = scopes[i].Limits
	}
	for n := range rapid.IntRange(1, 40).Draw(t, "jobs") {
		if raised := rapid.SampledFrom(scopes).Draw(t, "raised").Name; len(limits[raised]) > 0 &&
			rapid.IntRange(0, 3).Draw(t, "raise") == 0 {
			for i, limit := range limits[raised] {
				if limit.Precision == 0 && limit.Units > 100 {
					limit.Precision = (limit.Window / 100).Truncate(time.Microsecond)
				} else if limit.Precision == 0 {
					limit.Precision = throttle.Exact
				}
				if limit.Units != throttle.Unlimited {
					limit.Units += rapid.Int64Range(0, 5).Draw(t, "by")
				}
				if limit.Precision < limit.Window/1000 {
					limit.Units = min(limit.Units, 1000)
				}
				limits[raised][i] = limit
			}
			if err := subject.SetLimits(now, raised, "", limits[raised], time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		// Let the slots come that lie before the next arrival.
		next := now.Add(time.Duration(rapid.Int64Range(0, 3_000_000).Draw(t, "gap")) * time.Microsecond)
		for len(waiting) > 0 && !waiting[0].Start.After(next) {
			r := waiting[0]
			waiting = waiting[1:]
			keep(comesAtItsSlot(t, subject, r))
		}
		now = next
		if len(waiting) > 0 && rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
			i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
			if done, err := subject.Cancel(now, waiting[i].Job); err != nil || !done {
				t.Fatalf("Cancel: %t, %v", done, err)
			}
			waiting = slices.Delete(waiting, i, i+1)
		}
		job := h.draw(t)
		job.ID, job.MaxWait, job.Deadline, job.Costs = fmt.Sprintf("job%d", n), 0, time.Time{}, nil
		r, err := subject.Reserve(now, job)
		if err != nil {
			t.Fatal(err)
		}
		minimal(t, subject, now, r)
		keep(r)
	}
	for len(waiting) > 0 {
		r := waiting[0]
		waiting = waiting[1:]
		keep(comesAtItsSlot(t, subject, r))
	}
	for _, over := range throttletest.Check(scopes, starts) {
		t.Fatalf("window over its limit: %s", over)
	}
}

func comesAtItsSlot(t *rapid.T, subject throttletest.Subject, booked throttle.Reservation) throttle.Reservation {
	job := booked.Job
	job.Nonce = ""
	r, err := subject.Reserve(booked.Start, job)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != throttle.Granted || !r.Start.Equal(booked.Start) {
		t.Fatalf("job %s came at its slot %s: %s at %s", job.ID, booked.Start, r.Outcome, r.Start)
	}
	return r
}

// minimal asks for the same job again with a deadline just before its slot, which must
// be refused, and with a deadline at its slot, which must not.
func minimal(t *rapid.T, subject throttletest.Subject, now time.Time, booked throttle.Reservation) {
	if booked.Outcome != throttle.Booked {
		return
	}
	if _, err := subject.Cancel(now, booked.Job); err != nil {
		t.Fatal(err)
	}
	job := booked.Job
	job.Deadline = booked.Start.Add(-time.Microsecond)
	if r, err := subject.Reserve(now, job); err == nil {
		t.Fatalf("job %s has a start %s before its slot %s", job.ID, r.Start, booked.Start)
	}
	job.Deadline = booked.Start
	if r, err := subject.Reserve(now, job); err != nil || !r.Start.Equal(booked.Start) {
		t.Fatalf("job %s gets %s, %v; its slot was %s", job.ID, r.Start, err, booked.Start)
	}
}
