package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestLeave: jobs that nobody will come for leave the line many at a time, from its front and
// out of its middle, with odd IDs too. Others have their turn meanwhile, what is booked stays
// booked, and who left or was not there is told.
func TestLeave(t *testing.T) {
	t.Parallel()
	d := newDriverOn(t, quickServer(t), tenantsOf(throttle.Limit{Units: 2, Window: 10 * time.Second, Precision: throttle.Exact}, throttle.Per(100, 10*time.Second)))
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

// TestLeaveGivesBookingsBack: the room of booked jobs that leave is others' at once.
func TestLeaveGivesBookingsBack(t *testing.T) {
	t.Parallel()
	d := newDriverOn(t, quickServer(t), tenantsOf(throttle.Limit{Units: 10, Window: 10 * time.Second, Precision: throttle.Exact}, throttle.Per(100, 10*time.Second)))
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
