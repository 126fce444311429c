// Package frontier keeps in Redis what a crawl has found and what is left to do, and walks
// through it: it chooses the next page and follows the answers.
//
// It is not part of the example because it is about crawling, not about shaping: your own
// program has a frontier already, or uses a library's.
package frontier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/link"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
)

// maxAsked is how often a host may ask to be left alone for one page.
const maxAsked = 5

// maxHops is how many redirects in a row are followed.
const maxHops = 5

// Guide is the crawler, as the walk calls it.
type Guide interface {
	// Task returns the asynq task for a turn. It returns nil if the page was ended, or if
	// the rules of its host must be fetched first.
	Task(ctx context.Context, t *Turn) (*asynq.Task, error)
	// Heed applies a host's Crawl-delay; 0 if the host has none.
	Heed(ctx context.Context, host string, delay time.Duration) error
}

// Bounds bound a walk.
type Bounds struct {
	Depth     int    // the most links from a start page
	HostPages int    // the most pages of one host
	MaxKB     int64  // the most kilobytes of one page
	Agent     string // the user agent for which robots.txt is read
}

// Walk enqueues the pages that have their hosts' turns, and follows the answers.
type Walk struct {
	*Frontier
	bounds  Bounds
	guide   Guide
	queue   string
	client  *asynq.Client
	inspect *asynq.Inspector
	log     *zap.Logger
}

// NewWalk returns the walk of the program's queue, which an earlier run may have begun.
func NewWalk(p *rig.Program, g Guide, b Bounds) *Walk {
	return &Walk{
		Frontier: New(p.Client, p.Queue), bounds: b, guide: g, queue: p.Queue, log: p.Log,
		client: asynq.NewClientFromRedisClient(p.Client), inspect: asynq.NewInspectorFromRedisClient(p.Client),
	}
}

// Mend enqueues the turns for which asynq has no task, because a process died before it
// enqueued them or an operator deleted the task.
func (w *Walk) Mend(ctx context.Context) error {
	hosts, err := w.busy(ctx)
	if err != nil {
		return fmt.Errorf("crawler: busy hosts: %w", err)
	}
	for _, host := range hosts {
		t, err := w.turn(ctx, host)
		if err != nil {
			return err
		}
		if t == nil || w.given(t) {
			continue
		}
		if err := w.take(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// given reports whether asynq has a task for a turn.
func (w *Walk) given(t *Turn) bool {
	_, err := w.inspect.GetTaskInfo(w.queue, t.TaskID())
	return !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound)
}

// Found adds a page, and begins a turn of its host if it had none.
func (w *Walk) Found(ctx context.Context, u *url.URL, p Page) error {
	p.URL = u.String()
	rules := &Page{URL: robots.URL(u).String(), Customer: p.Customer, Robots: true}
	t, err := w.Add(ctx, u.Host, &p, rules, w.bounds.HostPages)
	if err != nil {
		return err
	}
	return w.take(ctx, t)
}

// take enqueues a host's turn. A page that may not be requested is ended, and the next page
// has the turn.
func (w *Walk) take(ctx context.Context, t *Turn) error {
	for t != nil {
		task, err := w.guide.Task(ctx, t)
		if err != nil {
			return err
		}
		if task != nil {
			_, err = w.client.EnqueueContext(ctx, task)
			if errors.Is(err, asynq.ErrTaskIDConflict) {
				return nil // it is enqueued
			}
			return err
		}
		if t.Page.Over() {
			t, err = w.end(ctx, t)
		} else {
			t, err = w.rulesFirst(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Rules returns the robots.txt for a URL, and false if it is not known or too old.
func (w *Walk) Rules(ctx context.Context, u *url.URL) (robots.Rules, bool, error) {
	text, known, err := w.robots(ctx, robots.Origin(u))
	return robots.Parse(text, w.bounds.Agent), known, err
}

// GiveUp ends a page that cannot be fetched. If it is a robots.txt, no page of its host may be
// requested.
func (w *Walk) GiveUp(ctx context.Context, p *Page, how, reason string) error {
	p.End(how, reason)
	if !p.Robots {
		return nil
	}
	u, err := p.Location()
	if err != nil {
		return err
	}
	return w.setRobots(ctx, robots.Origin(u), robots.DisallowAll)
}

// ticket is the payload of a task: which turn it stands for.
type ticket struct {
	Host string `json:"host"`
	Turn int64  `json:"turn"`
}

// Payload returns the payload of the turn's task.
func (t *Turn) Payload() []byte {
	text, _ := json.Marshal(ticket{Host: t.Host, Turn: t.Number}) // a string and a number
	return text
}

// TurnOf returns the turn that a task stands for and the URL to request, or nil if the turn
// has ended.
func (w *Walk) TurnOf(ctx context.Context, task *asynq.Task) (*Turn, *url.URL, error) {
	var of ticket
	if err := json.Unmarshal(task.Payload(), &of); err != nil {
		return nil, nil, fmt.Errorf("crawler: payload %q: %w: %w", task.Payload(), err, asynq.SkipRetry)
	}
	t, err := w.turn(ctx, of.Host)
	if err != nil || t == nil || t.Number != of.Turn {
		return nil, nil, err
	}
	target, err := t.Page.Target()
	return t, target, err
}

// ComeBack keeps a page's turn for after the wait that its host asks for, and returns the
// wait. It gives up after a few waits.
func (w *Walk) ComeBack(ctx context.Context, t *Turn, wait error) error {
	if t.Page.Asked++; t.Page.Asked > maxAsked {
		return fmt.Errorf("the host said %d times to come back later: %w", maxAsked, asynq.SkipRetry)
	}
	if err := w.keep(ctx, t.Page); err != nil {
		return err
	}
	return wait
}

// Conclude ends a turn by its answer, or requests the page again. atMost is how many kilobytes
// of the answer could be read.
func (w *Walk) Conclude(ctx context.Context, t *Turn, from *url.URL, a *fetch.Answer, atMost int64) error {
	switch {
	case a.Status >= 500:
		return fmt.Errorf("the host answered %d", a.Status)
	case a.Cut && !a.Huge && atMost < w.bounds.MaxKB && (t.Page.Robots || fetch.Kilobytes(a.Whole) <= w.bounds.MaxKB):
		// More than was charged: request it again with a larger charge.
		t.Page.Larger, t.Page.KB = true, w.bounds.MaxKB
		if a.Whole > 0 {
			t.Page.KB = fetch.Kilobytes(a.Whole)
		}
		return w.again(ctx, t, placeFirst)
	case t.Page.Robots:
		return w.learnRules(ctx, t, from, a)
	}
	if err := w.remember(ctx, t.Host, a); err != nil {
		return err
	}
	switch {
	case a.Status == http.StatusNotModified:
		t.Page.End(EndUnchanged, "")
	case a.Cut:
		t.Page.End(EndTooLarge, fmt.Sprintf("more than %d KB", w.bounds.MaxKB))
	case a.Location() != "":
		if err := w.redirected(ctx, t.Page, from, a); err != nil {
			return err
		}
	case a.Status == http.StatusOK:
		return w.fetched(ctx, t, from, a)
	default:
		t.Page.End(EndAbsent, fmt.Sprintf("the host answered %d", a.Status))
	}
	return w.ended(ctx, t)
}

// learnRules uses the answer to the request for a host's robots.txt.
func (w *Walk) learnRules(ctx context.Context, t *Turn, from *url.URL, a *fetch.Answer) error {
	if a.Location() != "" && t.Page.Hops < robots.MaxHops {
		if to, err := link.Resolve(from, a.Location()); err == nil {
			t.Page.MovedTo, t.Page.Hops = to.String(), t.Page.Hops+1
			return w.again(ctx, t, placeFirst)
		}
	}
	own, err := t.Page.Location()
	if err != nil {
		return err
	}
	text := robots.Text(a.Status, a.Body)
	if err := w.heed(ctx, t.Host, robots.Parse(text, w.bounds.Agent).Delay); err != nil {
		return err
	}
	if err := w.setRobots(ctx, robots.Origin(own), text); err != nil {
		return err
	}
	t.Page.End(endRules, fmt.Sprintf("the host answered %d", a.Status))
	return w.ended(ctx, t)
}

// heed passes a host's Crawl-delay on, and remembers it.
func (w *Walk) heed(ctx context.Context, host string, delay time.Duration) error {
	if err := w.guide.Heed(ctx, host, delay); err != nil {
		return fmt.Errorf("crawler: Crawl-delay of %s: %w", host, err)
	}
	notes, err := w.Notes(ctx, host)
	if err != nil || notes.Delay == delay {
		return err
	}
	notes.Delay = delay
	return w.setNotes(ctx, host, notes)
}

// remember keeps how large the pages of a host are.
func (w *Walk) remember(ctx context.Context, host string, a *fetch.Answer) error {
	notes, err := w.Notes(ctx, host)
	if err != nil {
		return err
	}
	if kb := fetch.Kilobytes(a.Bytes); kb > notes.Largest {
		notes.Largest = kb
		return w.setNotes(ctx, host, notes)
	}
	return nil
}

// fetched ends a page that was read, and adds the pages that it links to. A start page takes a second turn, the last of
// its host, to see whether it has changed.
func (w *Walk) fetched(ctx context.Context, t *Turn, from *url.URL, a *fetch.Answer) error {
	if a.IsHTML() && t.Page.Depth < w.bounds.Depth {
		for _, link := range link.Of(from, a.Body) {
			if err := w.Found(ctx, link, Page{Customer: t.Page.Customer, Depth: t.Page.Depth + 1}); err != nil {
				return err
			}
		}
	}
	t.Page.End(EndFetched, "")
	t.Page.Condition = fetch.ConditionOf(a)
	if t.Page.Depth == 0 && !t.Page.Second && t.Page.Condition != (fetch.Condition{}) {
		t.Page.Second, t.Page.KB = true, fetch.Kilobytes(a.Bytes)
		return w.again(ctx, t, placeLast)
	}
	return w.ended(ctx, t)
}

// redirected ends a page that is somewhere else. The target is a page of its own: in the line of its own host, under
// that host's rules and limits.
func (w *Walk) redirected(ctx context.Context, p *Page, from *url.URL, a *fetch.Answer) error {
	to, reason := link.Resolve(from, a.Location())
	switch {
	case reason != nil:
		p.End(EndAbsent, "it redirects to what "+reason.Error())
	case p.Hops >= maxHops:
		p.End(EndAbsent, fmt.Sprintf("more than %d redirects in a row", maxHops))
	default:
		p.End(EndRedirected, "to "+to.String())
		return w.Found(ctx, to, Page{Customer: p.Customer, Depth: p.Depth, Hops: p.Hops + 1})
	}
	return nil
}

// again gives the page another turn, and its host the next one.
func (w *Walk) again(ctx context.Context, t *Turn, place string) error {
	next, err := w.move(ctx, t, place)
	if err != nil {
		return err
	}
	return w.take(ctx, next)
}

// ended ends a turn and gives its host the next one.
func (w *Walk) ended(ctx context.Context, t *Turn) error {
	next, err := w.end(ctx, t)
	if err != nil {
		return err
	}
	return w.take(ctx, next)
}

// HandleError implements asynq.ErrorHandler. asynq calls it for every failed attempt,
// without the throttle's put-backs. It ends the pages that get no other attempt.
func (w *Walk) HandleError(ctx context.Context, task *asynq.Task, cause error) {
	if !account.IsLast(ctx, cause) {
		return
	}
	ctx = context.WithoutCancel(ctx) // the task's time may be over, which may be why it failed
	t, _, err := w.TurnOf(ctx, task)
	if err == nil && t != nil {
		if err = w.GiveUp(ctx, t.Page, EndFailed, plainReason(cause)); err == nil {
			err = w.ended(ctx, t)
		}
	}
	if err != nil { // Mend finds the turn
		w.log.Warn("crawler: a page that failed could not be ended", zap.Error(err))
	}
}

// plainReason returns an error's text without what was added for asynq.
func plainReason(err error) string {
	text, _, _ := strings.Cut(err.Error(), " (last of ")
	return account.PlainReason(text)
}
