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

// taskType is the type of the asynq tasks; each stands for a host's turn. asynq has one page
// of a host at a time: that is a crawler's oldest rule of politeness, and so a page never
// waits behind others of its host in the throttle's line.
const taskType = "page:fetch"

// headerCharge is the header with the kilobytes that a task is charged. The headers with its
// keys are named like the scopes.
const headerCharge = "charge"

// firstEstimate is how many kilobytes a host's first page is charged.
const firstEstimate = 32

// Task returns the asynq task for a turn. It is nil if the page may not be requested and was
// ended, or if the host's rules must be fetched first.
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

// charge returns how many kilobytes a page is charged before it is fetched: a quarter more
// than the host's largest page so far, since pages of one host are alike, or the page's own
// size if it is known. Reading stops before the charge is used up.
func (c *crawler) charge(p *frontier.Page, largest int64) int64 {
	kb := p.KB
	if kb == 0 {
		kb = max(firstEstimate, largest*5/4)
	}
	return min(kb, c.maxKB) + fetch.OnTheWay
}

// jobOf returns what a task takes: one request, one connection, and kilobytes.
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
