package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// visit is the handler of a task: it runs at the granted start. If the host was not
// reached, the charge is given back.
func (c *crawler) visit(ctx context.Context, task *asynq.Task) error {
	granted, ok := worker.Grant(ctx)
	if !ok {
		return fmt.Errorf("crawler: a task came without a grant: %w", asynq.SkipRetry)
	}
	t, target, err := c.walk.TurnOf(ctx, task)
	if err != nil {
		return worker.Untouched(err)
	}
	if t == nil { // asynq ran the task twice, and the other run has ended its turn
		return worker.Refund(ctx)
	}
	charged := granted.Job.Costs[throttle.Global]
	sent := time.Now()
	a, err := c.fetcher.Fetch(ctx, target, t.Page.Condition, fetch.Bounds{
		Sent: (charged - fetch.OnTheWay) * fetch.Kilobyte, Unpacked: c.maxKB * fetch.Kilobyte, Part: t.Page.Robots,
	})
	if fetch.NeverConnected(err) {
		return worker.Untouched(err)
	}
	// The slower a host is, the longer it rests.
	if err := worker.Cooldown(ctx, scopeConnections, time.Duration(c.cooldown*float64(time.Since(sent)))); err != nil {
		return err
	}
	settled := c.settle(ctx, granted, a)
	c.ledger.Visited(target, task, granted, settled, t.Page.Robots, sent, a)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	// 429, 503 and 529: no worker of any crawl asks this host for as long as it says. The page
	// runs again afterwards, and no retry is spent.
	if wait, asked := upstream.HTTPWait(&http.Response{StatusCode: a.Status, Header: a.Header}); asked {
		return c.walk.ComeBack(ctx, t, worker.AskedToWait(scopeHost, wait, nil))
	}
	return c.walk.Conclude(ctx, t, target, a, charged-fetch.OnTheWay)
}

// settle corrects the charge to what the server sent, and returns the kilobytes that are
// charged now. Without an answer, nobody knows how much was sent: the charge stays. The
// request stays charged even if the host asks to wait: a settled charge is not given back.
func (c *crawler) settle(ctx context.Context, granted throttle.Reservation, a *fetch.Answer) int64 {
	charged := granted.Job.Costs[throttle.Global]
	if a == nil {
		return charged
	}
	actual := min(fetch.Kilobytes(a.Sent), charged)
	if _, err := c.throttle.SettleCosts(context.WithoutCancel(ctx), granted, kilobyteCosts(actual)); err != nil {
		c.Log.Warn("crawler: a charge could not be settled, it stays", zap.Error(err))
		return charged
	}
	return actual
}
