package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// maxAsked is how often a host may ask to be left alone for one page.
const maxAsked = 5

// maxHops is how many redirects in a row are followed.
const maxHops = 5

// ticket is the payload of a task: which turn it stands for.
type ticket struct {
	Host string `json:"host"`
	Turn int64  `json:"turn"`
}

// visit is the handler of a task: it runs at the start that the throttle granted. An
// error from before the host was reached gives the charge back.
func (c *crawl) visit(ctx context.Context, task *asynq.Task) error {
	granted, ok := worker.Grant(ctx)
	if !ok {
		return fmt.Errorf("crawler: a task came without a grant: %w", asynq.SkipRetry)
	}
	t, err := c.turnOf(ctx, task)
	if err != nil {
		return worker.Untouched(err)
	}
	if t == nil { // asynq ran a task twice, and the other one has moved its host on
		return worker.Refund(ctx)
	}
	target, err := t.page.target()
	if err != nil {
		return worker.Untouched(err)
	}
	charged := granted.Job.Costs[throttle.Global]
	sent := time.Now()
	a, err := c.fetcher.fetch(ctx, target, t.page.condition, bounds{
		sent: (charged - onTheWay) * kilobyte, unpacked: c.options.maxKB * kilobyte, part: t.page.Robots,
	})
	if neverConnected(err) {
		return worker.Untouched(err)
	}
	settled := c.settle(ctx, granted, a)
	c.visits.add(visitOf(target, task.Headers(), t.page.Robots, granted.Start, charged, settled))
	if c.accesses != nil {
		c.accesses.add(seenByClient(target, a, t.page.Robots, sent))
	}
	if err != nil {
		return err
	}
	return c.conclude(context.WithoutCancel(ctx), t, target, a, charged-onTheWay)
}

// turnOf reads which turn a task stands for; nil if it is its host's no more.
func (c *crawl) turnOf(ctx context.Context, task *asynq.Task) (*turn, error) {
	var of ticket
	if err := json.Unmarshal(task.Payload(), &of); err != nil {
		return nil, fmt.Errorf("crawler: payload %q: %w: %w", task.Payload(), err, asynq.SkipRetry)
	}
	t, err := c.frontier.turn(ctx, of.Host)
	if err != nil || t == nil || t.number != of.Turn {
		return nil, err
	}
	return t, nil
}

// neverConnected tells whether an error came before a host was reached.
func neverConnected(err error) bool {
	var op *net.OpError
	return errors.Is(err, errForbiddenAddress) || errors.As(err, &op) && op.Op == "dial"
}

// settle corrects the charge to what the server sent, and returns the kilobytes that
// are charged now. Without any answer it is not known how much was on its way: the
// charge stays. The request stays charged, also if the host asks to be left alone and
// the page comes back: what is settled once is not refunded then.
func (c *crawl) settle(ctx context.Context, granted throttle.Reservation, a *answer) int64 {
	actual := granted.Job.Costs[throttle.Global]
	if a != nil {
		actual = min(kilobytes(a.sent), actual)
	}
	if _, err := c.throttle.SettleCosts(context.WithoutCancel(ctx), granted, kilobyteCosts(actual)); err != nil {
		c.log.Warn("crawler: a charge could not be settled", zap.Error(err))
	}
	return actual
}

// conclude does with an answer what it asks for. atMost is how many kilobytes of it
// were allowed to be read.
func (c *crawl) conclude(ctx context.Context, t *turn, from *url.URL, a *answer, atMost int64) error {
	wait := worker.HTTPWait(scopeHost, &http.Response{StatusCode: a.status, Header: a.header}, time.Now())
	switch {
	case wait != nil:
		return c.comeBack(ctx, t, wait)
	case a.status >= 500:
		return fmt.Errorf("the host answered %d", a.status)
	case a.cut && !a.huge && atMost < c.options.maxKB && (t.page.Robots || kilobytes(a.whole) <= c.options.maxKB):
		// More than was charged: once more, for a charge that does.
		t.page.Larger, t.page.KB = true, c.options.maxKB
		if a.whole > 0 {
			t.page.KB = kilobytes(a.whole)
		}
		return c.again(ctx, t, placeFirst)
	case t.page.Robots:
		return c.learnRules(ctx, t, from, a)
	}
	if err := c.remember(ctx, t.host, a); err != nil {
		return err
	}
	switch {
	case a.status == http.StatusNotModified:
		t.page.end(endUnchanged, "")
	case a.cut:
		t.page.end(endTooLarge, fmt.Sprintf("more than %d KB", c.options.maxKB))
	case a.location() != "":
		if err := c.redirected(ctx, t.page, from, a); err != nil {
			return err
		}
	case a.status == http.StatusOK:
		return c.fetched(ctx, t, from, a)
	default:
		t.page.end(endAbsent, fmt.Sprintf("the host answered %d", a.status))
	}
	return c.ended(ctx, t)
}

// comeBack leaves the host alone for as long as it asks for, but not for ever.
func (c *crawl) comeBack(ctx context.Context, t *turn, wait error) error {
	if t.page.Asked++; t.page.Asked > maxAsked {
		return fmt.Errorf("the host said %d times to come back later: %w", maxAsked, asynq.SkipRetry)
	}
	if err := c.frontier.keep(ctx, t.page); err != nil {
		return err
	}
	return wait
}

// remember keeps how large the pages of a host are.
func (c *crawl) remember(ctx context.Context, host string, a *answer) error {
	notes, err := c.frontier.notes(ctx, host)
	if err != nil {
		return err
	}
	if kb := kilobytes(a.bytes); kb > notes.Largest {
		notes.Largest = kb
		return c.frontier.setNotes(ctx, host, notes)
	}
	return nil
}

// fetched ends a page that was read, and makes those known that it links to. A start
// page takes a second turn, the last of its host: to see whether it has changed.
func (c *crawl) fetched(ctx context.Context, t *turn, from *url.URL, a *answer) error {
	if a.isHTML() && t.page.Depth < c.options.depth {
		for _, link := range linksOf(from, a.body) {
			if err := c.found(ctx, link, page{Customer: t.page.Customer, Depth: t.page.Depth + 1}); err != nil {
				return err
			}
		}
	}
	t.page.end(endFetched, "")
	t.page.condition = conditionOf(a)
	if t.page.Depth == 0 && !t.page.Second && t.page.condition != (condition{}) {
		t.page.Second, t.page.KB = true, kilobytes(a.bytes)
		return c.again(ctx, t, placeLast)
	}
	return c.ended(ctx, t)
}

// redirected ends a page that is somewhere else. That is a page of its own: in the
// line of its own host, under the rules and limits of that.
func (c *crawl) redirected(ctx context.Context, p *page, from *url.URL, a *answer) error {
	to, reason := resolve(from, a.location())
	switch {
	case reason != nil:
		p.end(endAbsent, "it redirects to what "+reason.Error())
	case p.Hops >= maxHops:
		p.end(endAbsent, fmt.Sprintf("more than %d redirects in a row", maxHops))
	default:
		p.end(endRedirected, "to "+to.String())
		return c.found(ctx, to, page{Customer: p.Customer, Depth: p.Depth, Hops: p.Hops + 1})
	}
	return nil
}

// again gives the page another turn, and its host the next one.
func (c *crawl) again(ctx context.Context, t *turn, place string) error {
	next, err := c.frontier.move(ctx, t, place)
	if err != nil {
		return err
	}
	return c.take(ctx, next)
}

// ended ends a turn and gives its host the next one.
func (c *crawl) ended(ctx context.Context, t *turn) error {
	next, err := c.frontier.end(ctx, t)
	if err != nil {
		return err
	}
	return c.take(ctx, next)
}

// failed is asynq's error handler. It hears of every failed attempt (the throttle's
// denials are kept from it), and ends the pages that get no other.
func (c *crawl) failed(ctx context.Context, task *asynq.Task, cause error) {
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	if !errors.Is(cause, asynq.SkipRetry) && retried < most {
		return
	}
	ctx = context.WithoutCancel(ctx) // the task's time may be over, which may be why it failed
	t, err := c.turnOf(ctx, task)
	if err == nil && t != nil {
		if err = c.giveUp(ctx, t.page, endFailed, plainReason(cause)); err == nil {
			err = c.ended(ctx, t)
		}
	}
	if err != nil { // mend finds the turn
		c.log.Warn("crawler: a page that failed could not be ended", zap.Error(err))
	}
}

// plainReason is an error's text without what was added for asynq.
func plainReason(err error) string {
	text, _, _ := strings.Cut(err.Error(), " (last of ")
	return strings.TrimSuffix(text, ": "+asynq.SkipRetry.Error())
}
