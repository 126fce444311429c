package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestTurnsAfterHugeWork: after a job that has taken most units that a job can take, flows of light jobs still share
// what starts, although one unit is less than the distance of two neighbours among the numbers that a tag can have.
func TestTurnsAfterHugeWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(20, second)}}))
	for i := range 4000 {
		w.arrive(id("huge%d", i), "huge", []string{"global:"}, 1)
	}
	w.run(w.now + 2*second)
	for range 3 { // the next of them to start moves the virtual time there
		last := w.served[len(w.served)-1]
		if !w.line.Settle(w.now, w.settings, line.Grant{ID: last.job.ID, Lane: last.job.Lane, Costs: []int64{1},
			Start: last.started, Decided: w.now, Waited: true}, []int64{line.Never / 2}, hour, false) {
			t.Fatal("not settled")
		}
		w.run(w.now + 3*second)
	}
	began := w.now
	for _, flow := range []string{"a", "b"} {
		for i := range 300 {
			w.arrive(id("%s%d", flow, i), flow, []string{"global:"}, 1)
		}
	}
	w.run(began + 15*second)
	units := w.units(began+2*second, w.now)
	t.Logf("%v", units)
	if units["a"] < 80 || units["b"] < 80 {
		t.Errorf("of 260 units a has started %d and b %d, want about a third each", units["a"], units["b"])
	}
}

// TestTakingOverIsPaidOnce: a job that has lost its slot, for which its flow has paid, takes over that of a late job.
// Its flow has then paid for one start.
func TestTakingOverIsPaidOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(3, 10*second)}, "tenant": nil}))
	ask := func(name, flow string, cost int64, want line.Outcome) {
		t.Helper()
		job := line.Job{ID: name, Lane: flow + "|global:,tenant:" + flow, Costs: []int64{cost, cost}, Share: 1,
			Latest: line.Never}
		if got := w.line.Reserve(w.now, w.settings, []line.Job{job})[0].Outcome; got != want {
			t.Fatalf("%s: outcome %d, want %d", name, got, want)
		}
	}
	ask("first", "c", 3, line.Granted)
	for _, name := range []string{"lost", "late", "last"} {
		ask(name, "a", 1, line.Waiting)
		ask("b"+name, "b", 1, line.Waiting)
	}
	before := w.line.Tag("global:", "a")
	w.now += 10*second - milli
	w.line.Pull(w.now, w.settings, 50, 200) // books "lost", "blost" and "late"
	w.now += milli
	w.line.Pause(w.now, w.settings, "tenant:a", w.now+hour)
	ask("lost", "a", 1, line.Waiting)
	w.now += 100 * milli
	w.line.Pull(w.now, w.settings, 50, 200)
	w.line.Pause(w.now, w.settings, "tenant:a", 0)
	ask("lost", "a", 1, line.Granted)
	if paid := w.line.Tag("global:", "a") - before; paid < 0.9 || paid > 1.1 {
		t.Errorf("the flow has paid for %.3f units, want 1", paid)
	}
}
