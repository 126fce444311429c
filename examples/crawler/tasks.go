package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/frontier"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/link"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// taskType is the type of the asynq tasks that stand for a host's turn each. Of each
// host one page at a time is in asynq: that is a crawler's oldest rule of politeness, and
// so a page never stands behind others of its host in the throttle's line.
const taskType = "page:fetch"

// headerCharge is the header with the kilobytes that a task is charged. Those with its
// keys are named like the scopes.
const headerCharge = "charge"

// firstEstimate is how many kilobytes a host's first page is taken for.
const firstEstimate = 32

// Task is the asynq task for a turn. It is nil if the page has been ended instead,
// since it may not be requested, or if the rules of its host have to come first.
func (c *crawler) Task(ctx context.Context, t *frontier.Turn) (*asynq.Task, error) {
	u, err := t.Page.Target()
	if err != nil {
		return nil, err
	}
	addr, err := c.resolver.Address(ctx, u.Hostname())
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, fetch.ErrForbiddenAddress):
		return nil, c.walk.GiveUp(ctx, t.Page, frontier.EndBlocked, err.Error())
	case err != nil:
		return nil, c.walk.GiveUp(ctx, t.Page, frontier.EndFailed, err.Error())
	}
	if may, err := c.may(ctx, t.Page, u); err != nil || !may {
		return nil, err
	}
	notes, err := c.walk.Notes(ctx, t.Host)
	if err != nil {
		return nil, err
	}
	return worker.NewTask(taskType, t.Payload(), map[string]string{
		headerCharge:  strconv.FormatInt(c.charge(t.Page, notes.Largest), 10),
		scopeHost:     u.Host,
		scopeSite:     link.Site(u),
		scopeIP:       addr.String(),
		scopeCustomer: t.Page.Customer,
	}, asynq.TaskID(t.TaskID()), asynq.Queue(c.Queue), asynq.MaxRetry(retries), asynq.Timeout(taskTimeout)), nil
}

// charge is how many kilobytes a page is charged before it is fetched: a quarter
// more than the largest of its host so far, since pages of one host are alike; or
// what it has turned out to have. The reading stops before the charge is used up.
func (c *crawler) charge(p *frontier.Page, largest int64) int64 {
	kb := p.KB
	if kb == 0 {
		kb = max(firstEstimate, largest*5/4)
	}
	return min(kb, c.maxKB) + fetch.OnTheWay
}

// jobOf tells the throttle what a task takes: one request, one connection and so many
// kilobytes.
func jobOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	headers := task.Headers()
	kb, err := strconv.ParseInt(headers[headerCharge], 10, 64)
	if err != nil {
		return throttle.Job{}, fmt.Errorf("crawler: header %s %q is not an integer", headerCharge, headers[headerCharge])
	}
	keys := map[string]string{scopeAllRequests: scopeAllRequests, scopeHostKilobytes: headers[scopeHost],
		scopeConnections: headers[scopeIP]}
	for _, scope := range []string{scopeHost, scopeSite, scopeIP, scopeCustomer} {
		keys[scope] = headers[scope]
	}
	return throttle.Job{Weight: 1, Costs: kilobyteCosts(kb), Keys: keys}, nil
}
