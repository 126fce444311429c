package throttle_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestLeave: jobs that will not come leave the line many at a time, from its front and out of its
// middle, with odd IDs too. Other jobs have their turn meanwhile, booked jobs stay booked, and
// Leave says which jobs left and which were not there.
func TestLeave(t *testing.T) {
	t.Parallel()
	d := newDriverOn(t, quickServer(t),
		tenantsOf(throttle.Limit{Units: 2, Window: 10 * time.Second, Precision: throttle.Exact},
			throttle.Per(100, 10*time.Second)))
	d.enqueue(1, "first-", 2, of("x"))
	ids := []string{"a0", "a:1\n\x00", "{a2}", "a3", "a4"}
	for i, id := range ids {
		if r := d.ask(throttle.Job{ID: id, Weight: int64(1 + i%2), Keys: of("a")}); r.Outcome != throttle.Waiting {
			t.Fatalf("%q is %v", id, r.Outcome)
		}
	}
	d.enqueue(1, "b", 1, of("b"))
	d.pass(9500 * time.Millisecond)
	d.pull()
	if len(d.booked) != 2 { // one unit of each
		t.Fatalf("%d jobs are booked, want those of both tenants: %+v", len(d.booked), d.booked)
	}
	left, err := d.script.Leave(d.now, []string{ids[1], "nobody", ids[2], "first-0"})
	if want := []bool{true, false, true, false}; err != nil || fmt.Sprint(left) != fmt.Sprint(want) {
		t.Fatalf("left %v, %v; want %v", left, err, want)
	}
	if left, err = d.script.Leave(d.now, ids[1:2]); err != nil || left[0] {
		t.Fatalf("left again: %v, %v", left, err)
	}
	d.run(40*time.Second, 250*time.Millisecond)
	for _, id := range []string{"a0", "b0", "a3", "a4"} {
		if d.started[id].IsZero() {
			t.Errorf("%s has not started", id)
		}
	}
	for _, id := range ids[1:3] {
		if !d.started[id].IsZero() {
			t.Errorf("%q has started, and had left", id)
		}
	}
}

// TestLeaveGivesBookingsBack: other jobs get the room of booked jobs that leave at once.
func TestLeaveGivesBookingsBack(t *testing.T) {
	t.Parallel()
	d := newDriverOn(t, quickServer(t),
		tenantsOf(throttle.Limit{Units: 10, Window: 10 * time.Second, Precision: throttle.Exact},
			throttle.Per(100, 10*time.Second)))
	d.enqueue(10, "first-", 1, of("x"))
	d.enqueue(500, "gone-", 1, of("a"))
	d.enqueue(10, "stays-", 1, of("b"))
	d.absent = func(id string) bool { return id[0] == 'g' }
	d.pass(9500 * time.Millisecond)
	for range 100 {
		d.pull()
		var ids []string
		for _, r := range d.booked {
			if d.absent(r.Job.ID) {
				ids = append(ids, r.Job.ID)
			}
		}
		if len(ids) == 0 {
			break
		}
		if _, err := d.script.Leave(d.now, ids); err != nil {
			t.Fatal(err)
		}
	}
	d.run(time.Second, 50*time.Millisecond)
	if n := d.startedBy()["stays"]; n != 10 {
		t.Errorf("%d of 10 jobs have started, behind 500 that are gone", n)
	}
}

// TestLeaveManyOfALane: a long lane is read in pages, in the order of its jobs. Many jobs leave in
// one call, booked ones among them, and each is returned once. The remaining jobs are counted and
// start; when all have left, nothing of the line remains and the next job is booked.
func TestLeaveManyOfALane(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.PerMinute(100),
			throttle.Limit{Units: 1, Window: time.Minute, Precision: throttle.Exact}), throttle.Options{})
		comes(t, s, 0, throttle.Job{ID: "first", Keys: of("a")}, throttle.Granted)
		const jobs, stays = 520, 333 // more than a page has
		var all []throttle.Job
		for i := range jobs {
			all = append(all, throttle.Job{ID: fmt.Sprint(i), Weight: 1, Keys: of("a")})
		}
		last := s.ReserveAll(dawn, all)[jobs-1].Reservation
		if last.Ahead != jobs-1 {
			t.Errorf("the last has %d jobs before it, want %d", last.Ahead, jobs-1)
		}
		told := func() (ids []string) {
			t.Helper()
			for from, pages := "", 0; pages == 0 || from != ""; pages++ {
				page, next, err := inspect.New(s.throttle).Jobs(t.Context(), last.Lane, from)
				if err != nil || pages > jobs {
					t.Fatalf("page %d: %v", pages, err)
				}
				for _, r := range page {
					ids = append(ids, r.Job.ID)
				}
				from = next
			}
			return ids
		}
		ids := told()
		if len(ids) != jobs || !slices.IsSortedFunc(ids,
			func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) {
			t.Fatalf("%d jobs are told, want %d in their order: %q", len(ids), jobs, ids)
		}
		// The first is booked meanwhile.
		if booked, err := s.Pull(dawn.Add(59500 * time.Millisecond)); err != nil || len(booked.Booked) != 1 ||
			booked.Booked[0].Job.ID != "0" {
			t.Fatalf("pulled %+v, %v; want the first", booked.Booked, err)
		}
		gone := append(slices.Delete(slices.Clone(ids), stays, stays+1), "nobody")
		left, err := s.Leave(dawn.Add(59600*time.Millisecond), gone)
		if err != nil || len(left) != len(gone) || slices.Contains(left[:len(gone)-1], false) || left[len(gone)-1] {
			t.Fatalf("of %d jobs %v left, %v", len(gone), left, err)
		}
		if left, err = s.Leave(dawn.Add(59600*time.Millisecond), gone); err != nil || slices.Contains(left, true) {
			t.Errorf("they leave a second time: %v, %v", left, err)
		}
		if rest := told(); len(rest) != 1 || rest[0] != fmt.Sprint(stays) {
			t.Errorf("%q are left, want %d", rest, stays)
		}
		at := 59600 * time.Millisecond
		var booked []throttle.Reservation
		for range 9 { // it passes over those that have left, so many in a pull
			booked = append(booked, drain(t, s, dawn.Add(at))...)
			at += 50 * time.Millisecond
		}
		if len(booked) != 1 || booked[0].Job.ID != fmt.Sprint(stays) || !booked[0].Start.Equal(dawn.Add(time.Minute)) {
			t.Fatalf("booked %+v, want %d at the place that the first gave back", booked, stays)
		}
		comes(t, s, time.Minute, throttle.Job{ID: fmt.Sprint(stays), Keys: of("a")}, throttle.Granted)
		for key := range keyspace(t, client, s.throttle) {
			_, end, _ := strings.Cut(key, "}:4:")
			if kind, _, _ := strings.Cut(end, ":"); kind != "key" && kind != "ledger" && kind != "pulled" {
				t.Errorf("when all have left or started, there is %s", end)
			}
		}
		comes(t, s, 2*time.Minute-500*time.Millisecond, throttle.Job{ID: "next", Keys: of("a")}, throttle.Booked)
	})
}

// TestLeaveTwiceInOneCall: a job that is named twice leaves once, and no other booking with it.
func TestLeaveTwiceInOneCall(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := globalScope(throttle.Limit{Units: 4, Window: time.Minute, Precision: time.Second})
		for name, s := range map[string]throttletest.Subject{
			"scripts": newScripted(newThrottle(t, client, scopes, nil)),
			"model":   throttletest.NewModel(scopes, throttle.Options{Lookahead: maxWindow}),
		} {
			for _, job := range []throttle.Job{{ID: "all", Weight: 4}, {ID: "one", Weight: 1}, {ID: "other", Weight: 1}} {
				if _, err := s.Reserve(dawn, job); err != nil {
					t.Fatal(err)
				}
			}
			left, err := s.Leave(dawn, []string{"one", "one"})
			if err != nil || !slices.Equal(left, []bool{true, false}) {
				t.Errorf("%s: got %v, %v; want left once", name, left, err)
			}
			if u, err := s.Usage(dawn, throttle.Global, ""); err != nil || u.Limits[0].Booked != 1 {
				t.Errorf("%s: %d units are booked, %v; want that of the other", name, u.Limits[0].Booked, err)
			}
		}
	})
}
