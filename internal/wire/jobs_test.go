package wire_test

import (
	"reflect"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// TestRecordsOfJobsAreRead: a booked job has costs, a waiting job has them in its lane, counted or not; what is
// foreign is no job.
func TestRecordsOfJobsAreRead(t *testing.T) {
	t.Parallel()
	const lane = "acme|global:,domain:a%20b"
	for text, want := range map[string]struct {
		lane  string
		costs []int64
	}{
		"900 2,1 100 " + lane: {lane, []int64{2, 1}}, "0 3 100 " + lane: {lane, []int64{3, 3}}, "-100 " + lane: {lane, nil},
		"900 2,1 100 + " + lane: {lane, []int64{2, 1}}, "-100 2,1 + " + lane: {lane, nil}, // counted
		"900 2,1 100 + = " + lane: {lane, []int64{2, 1}}, "-100 2,1 = " + lane: {lane, nil}, // lost
		"": {}, "900 2": {}, "-100": {},
	} {
		if of, costs := wire.ReadRecord(text); of != want.lane || !reflect.DeepEqual(costs, want.costs) {
			t.Errorf("%q: lane %q, costs %d, want %+v", text, of, costs, want)
		}
	}
	want := line.Waiter{ID: "a:b", Arrival: 7, Costs: []int64{2, 1}}
	if got, is := wire.ReadWaiter(lane, "7:2,1:a:b"); !is || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %t, want %+v", got, is, want)
	}
	for _, text := range []string{"", "7:2", "x:2:a", "7:y:a"} {
		if got, is := wire.ReadWaiter(lane, text); is {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
