package workertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
	"github.com/asynq-throttle/asynq-throttle/worker/workertest"
)

var mail = throttle.Job{ID: "mail-1", Weight: 30, Keys: map[string]string{"tenant": "acme"}}

func TestGrantIsInTheContext(t *testing.T) {
	t.Parallel()
	ctx, _ := workertest.NewGrant(t.Context(), mail)
	granted, ok := worker.Grant(ctx)
	if !ok || granted.Outcome != throttle.Granted || granted.Start.IsZero() {
		t.Errorf("Grant returned %+v, %t; want one that has started", granted, ok)
	}
	if diff := cmp.Diff(mail, granted.Job); diff != "" {
		t.Error(diff)
	}
}

func TestGrantIsSettledOnce(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(context.Context) error{
		"settle": func(ctx context.Context) error { return worker.Settle(ctx, 0) },
		"costs":  func(ctx context.Context) error { return worker.SettleCosts(ctx, map[string]int64{"tenant": 28}) },
		"refund": worker.Refund,
	} {
		ctx, grant := workertest.NewGrant(t.Context(), mail)
		for _, call := range []func(context.Context) error{first,
			func(ctx context.Context) error { return worker.Settle(ctx, 7) }, worker.Refund} {
			if err := call(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		units, settled := grant.Settled()
		if settled != (name == "settle") || units != 0 {
			t.Errorf("%s: settled is %d, %t", name, units, settled)
		}
		if got := grant.SettledCosts()["tenant"]; (got == 28) != (name == "costs") {
			t.Errorf("%s: the tenant is settled for %d", name, got)
		}
		if grant.Refunded() != (name == "refund") {
			t.Errorf("%s: refunded is %t", name, grant.Refunded())
		}
	}
}

func TestGrantRefusesANegativeSettlement(t *testing.T) {
	t.Parallel()
	ctx, grant := workertest.NewGrant(t.Context(), mail)
	var invalid *throttle.InvalidJobError
	if err := worker.Settle(ctx, -1); !errors.As(err, &invalid) {
		t.Errorf("Settle of -1 returned %v", err)
	}
	if err := worker.SettleCosts(ctx, map[string]int64{"tenant": -1}); !errors.As(err, &invalid) {
		t.Errorf("SettleCosts of -1 returned %v", err)
	}
	if _, settled := grant.Settled(); settled {
		t.Error("what was refused is settled")
	}
}

func TestGrantNotesReportsAndCooldowns(t *testing.T) {
	t.Parallel()
	ctx, grant := workertest.NewGrant(t.Context(), mail)
	granted, _ := worker.Grant(ctx)
	served, err := worker.Report(ctx, "tenant", throttle.Report{Refused: true, RetryAfter: time.Minute})
	if err != nil || served.Served != 1 || served.Key != "acme" {
		t.Errorf("Report returned %+v, %v", served, err)
	}
	if _, err := worker.Report(ctx, "domain", throttle.Report{}); !errors.Is(err, worker.ErrNoGrant) {
		t.Errorf("a report of a scope that the job has no key of returned %v", err)
	}
	if err := worker.Cooldown(ctx, "tenant", time.Second); err != nil {
		t.Error(err)
	}
	want := []throttle.Report{{Refused: true, RetryAfter: time.Minute, Started: granted.Start}}
	if diff := cmp.Diff(want, grant.Reports("tenant")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]time.Duration{"tenant": time.Second}, grant.Cooldowns()); diff != "" {
		t.Error(diff)
	}
}
