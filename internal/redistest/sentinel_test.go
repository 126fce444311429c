package redistest_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.StartSentinel(t)
	client := s.Client(t)
	if err := client.Set(ctx, "k", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	first, second := s.Servers[0], s.Servers[1]
	if primary := s.Primary(); primary != first {
		t.Errorf("the primary is %s, want %s", primary.Addr, first.Addr)
	}
	second.AwaitSync(first)
	if killed := s.KillPrimary(); killed != first || killed.Running() {
		t.Errorf("killed %s, want %s", killed.Addr, first.Addr)
	}
	if primary := s.AwaitPrimary(first); primary != second {
		t.Errorf("the primary is %s, want %s", primary.Addr, second.Addr)
	}
	if got, err := second.Client(t).Get(ctx, "k").Result(); err != nil || got != "1" {
		t.Errorf("it has %q, %v; want what the first had", got, err)
	}
	s.Heal()
	if primary := s.Primary(); primary != second {
		t.Errorf("healed, the primary is %s, want %s", primary.Addr, second.Addr)
	}
	if got, err := first.Client(t).Get(ctx, "k").Result(); err != nil || got != "1" {
		t.Errorf("the first, now a replica, has %q, %v", got, err)
	}
}
