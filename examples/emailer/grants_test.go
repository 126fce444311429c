package main

import (
	"testing"
	"time"
)

func TestDelaysTakesTheLatestGrantBeforeTheReceipt(t *testing.T) {
	t.Parallel()
	zero := time.Unix(1_700_000_000, 0)
	after := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	a, b := &mail{id: "a"}, &mail{id: "b"}
	granted := []grant{{start: after(0), mail: a}, {start: after(10), mail: b}, {start: after(1000), mail: a}, {start: after(2000), mail: b}}
	receipts := []receipt{
		{at: after(7), mail: "a"},
		{at: after(1003), mail: "a"},
		{at: after(30), mail: "b"}, // and none for b's second grant
		{at: after(99999), mail: "of another campaign"},
	}
	longest, shortest := delays(arrivals(granted, receipts))
	if longest != 20*time.Millisecond || shortest != 3*time.Millisecond {
		t.Errorf("got %s and %s, want 20ms and 3ms", longest, shortest)
	}
}

func TestDelaysOfClocksThatDiffer(t *testing.T) {
	t.Parallel()
	zero := time.Unix(1_700_000_000, 0)
	longest, shortest := delays(arrivals([]grant{{start: zero, mail: &mail{id: "a"}}}, []receipt{{at: zero.Add(-time.Millisecond), mail: "a"}}))
	if longest != -time.Millisecond || shortest != -time.Millisecond {
		t.Errorf("got %s and %s, want -1ms and -1ms", longest, shortest)
	}
	if longest, shortest := delays(nil); longest != 0 || shortest != 0 {
		t.Errorf("of nothing: got %s and %s, want 0 and 0", longest, shortest)
	}
}
