package delivery

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
)

func TestDelaysTakesTheLatestGrantBeforeTheReceipt(t *testing.T) {
	t.Parallel()
	zero := time.Unix(1_700_000_000, 0)
	after := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	a, b := &campaign.Mail{ID: "a"}, &campaign.Mail{ID: "b"}
	granted := []grant{{start: after(0), mail: a}, {start: after(10), mail: b}, {start: after(1000), mail: a},
		{start: after(2000), mail: b}}
	receipts := []smtp.Receipt{
		{At: after(7), Mail: "a"},
		{At: after(1003), Mail: "a"},
		{At: after(30), Mail: "b"}, // and none for b's second grant
		{At: after(99999), Mail: "of another campaign"},
	}
	longest, shortest := delays(arrivals(granted, receipts))
	if longest != 20*time.Millisecond || shortest != 3*time.Millisecond {
		t.Errorf("got %s and %s, want 20ms and 3ms", longest, shortest)
	}
}

func TestDelaysOfClocksThatDiffer(t *testing.T) {
	t.Parallel()
	zero := time.Unix(1_700_000_000, 0)
	longest,
		shortest := delays(arrivals([]grant{{start: zero, mail: &campaign.Mail{ID: "a"}}},
		[]smtp.Receipt{{At: zero.Add(-time.Millisecond), Mail: "a"}}))
	if longest != -time.Millisecond || shortest != -time.Millisecond {
		t.Errorf("got %s and %s, want -1ms and -1ms", longest, shortest)
	}
	if longest, shortest := delays(nil); longest != 0 || shortest != 0 {
		t.Errorf("of nothing: got %s and %s, want 0 and 0", longest, shortest)
	}
}
