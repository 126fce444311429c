// Package completion reports what became of the prompts of a run. A Ledger records the prompts while
// the workers answer them. Its Report compares this record with the provider's: how long an answer
// took, how much of the provider's capacity was used, and whether every limit and budget was kept.
package completion

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// lookEvery is how often a run checks whether all prompts that are left wait for tomorrow.
const lookEvery = time.Second

// later is from how far ahead of its start a job counts as waiting for tomorrow's budget.
const later = time.Hour

// Run describes a run.
type Run struct {
	Prompts  []*prompt.Prompt // in the order of their arrival
	Upstream *provider.Upstream
	Scopes   []throttle.Scope // this package's scopes, with their limits
	Model    string
	Window   time.Duration // the length of the provider's windows
}

// Ledger records the prompts of a run. It is safe for concurrent use, except for
// Resume, Watch and Begin.
type Ledger struct {
	Run
	program  *rig.Program
	throttle *throttle.Throttle
	shaper   *worker.Shaper
	planner  *worker.Client
	inspect  *asynq.Inspector
	outcomes outcomes
	grants   *grants
	began    time.Time
	spent    map[string]int64 // tokens of each customer's budget that were used before this run

	interrupted, tomorrow bool // how the run ended: its context did, or all prompts left wait for tomorrow
}

// New returns an empty ledger.
func New(p *rig.Program, r Run) *Ledger {
	p.ShowProgress()
	return &Ledger{
		Run: r, program: p, inspect: asynq.NewInspectorFromRedisClient(p.Client),
		outcomes: newOutcomes(r.Prompts), grants: new(grants), began: time.Now(),
	}
}

// Watch makes the ledger ask a throttle, a shaper and a planner for the progress.
func (l *Ledger) Watch(th *throttle.Throttle, shaper *worker.Shaper, planner *worker.Client) {
	l.throttle, l.shaper, l.planner = th, shaper, planner
}

// Resume finds out which prompts an earlier run has ended, and returns the others. The IDs of
// the tasks are the prompts'.
func (l *Ledger) Resume() ([]*prompt.Prompt, error) {
	ids := make([]string, len(l.Prompts))
	for i, p := range l.Prompts {
		ids[i] = p.ID
	}
	tasks, err := account.Tasks(l.inspect, l.program.Queue, ids)
	if err != nil {
		return nil, err
	}
	var open []*prompt.Prompt
	for _, p := range l.Prompts {
		switch task := tasks[p.ID]; {
		case task != nil && task.State == asynq.TaskStateCompleted:
			l.outcomes.end(p.ID, answered, "", true)
		case task != nil && task.State == asynq.TaskStateArchived:
			l.outcomes.end(p.ID, gaveUp, account.PlainReason(task.LastErr), true)
		default:
			open = append(open, p)
		}
	}
	return open, nil
}

// Begin notes that the run begins now, and returns the current time.
func (l *Ledger) Begin(ctx context.Context) (time.Time, error) {
	var err error
	l.spent, err = l.budgets(ctx)
	l.began = time.Now()
	return l.began, err
}

// budgets returns how many tokens of each customer's budget are used, according to the throttle.
func (l *Ledger) budgets(ctx context.Context) (map[string]int64, error) {
	used := make(map[string]int64)
	for _, p := range l.Prompts {
		if _, known := used[p.Customer]; known {
			continue
		}
		u, err := inspect.New(l.throttle).Usage(ctx, ScopeBudget, p.Customer)
		if err != nil {
			return nil, fmt.Errorf("budget of %s: %w", p.Customer, err)
		}
		used[p.Customer] = u.Limits[0].Used
	}
	return used, nil
}

// Arrived notes when a prompt is enqueued, on Redis' clock.
func (l *Ledger) Arrived(p *prompt.Prompt, at time.Time) { l.outcomes.arrived(p.ID, at) }

// Refused notes that a prompt can never start.
func (l *Ledger) Refused(p *prompt.Prompt, why error) {
	how := gaveUp
	var late *throttle.DeadlineError
	if errors.As(why, &late) {
		how = overBudget
	}
	l.outcomes.end(p.ID, how, account.PlainReason(why.Error()), false)
}

type grantKey struct{}

// Wrap notes each attempt of a handler: its granted start and how it ended. It belongs inside
// the shaper's middleware.
func (l *Ledger) Wrap(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		granted, ok := worker.Grant(ctx)
		p, err := prompt.Read(task.Payload())
		if !ok || err != nil {
			return next.ProcessTask(ctx, task)
		}
		charged := granted.Job.Costs[ScopeTokens]
		number := l.grants.Add(grant{start: granted.Start, prompt: p, charged: charged, settled: charged})
		sent := time.Now()
		err = next.ProcessTask(context.WithValue(ctx, grantKey{}, number), task)
		var wait *worker.WaitError
		var untouched *worker.UntouchedError
		asked := errors.As(err, &wait)
		used := l.grants.end(number, l.program.Now(), asked || errors.As(err, &untouched))
		if l.Upstream.Inside == nil && (asked || err == nil) {
			l.Upstream.Record.Add(provider.Request{
				At: sent, End: time.Now(), ID: p.ID, Model: l.Model, Customer: p.Customer, MaxTokens: p.MaxTokens,
				Prompt: used.PromptTokens, Completion: used.CompletionTokens, Refused: asked,
			})
		}
		if err == nil {
			l.outcomes.end(p.ID, answered, "", false)
		}
		return err
	})
}

// Settled notes, for the handler whose context is ctx, how many tokens the provider reported, when the handler
// began to settle its charge, and whether settling failed.
func (l *Ledger) Settled(ctx context.Context, used chat.Usage, began time.Time, failed error) {
	if number, ok := ctx.Value(grantKey{}).(int); ok {
		l.grants.settle(number, used, began.Add(l.program.Offset), failed == nil)
	}
}

// HandleError implements asynq.ErrorHandler. asynq calls it for every failed attempt, but not
// when the throttle puts a task back. HandleError ends the prompts that get no further attempt.
func (l *Ledger) HandleError(ctx context.Context, task *asynq.Task, err error) {
	p, unreadable := prompt.Read(task.Payload())
	if unreadable == nil && account.IsLast(ctx, err) {
		l.Refused(p, err)
	}
}

// Wait shows the progress until all prompts have ended, all that are left wait for
// tomorrow, ctx has ended, or the enqueuing failed. The channel enqueued receives the result of the enqueuing.
func (l *Ledger) Wait(ctx context.Context, enqueued <-chan error) error {
	defer l.program.Progress.Finish()
	err := account.Watch{
		Done: l.outcomes.Done(), Enqueued: enqueued, Show: l.show, Every: lookEvery,
		Look: func(ctx context.Context) bool {
			l.tomorrow = l.waitsForTomorrow(ctx)
			return l.tomorrow
		},
	}.Wait(ctx)
	l.interrupted = ctx.Err() != nil
	return err
}

// waitsForTomorrow reports whether none of the prompts that are left will start soon. While any
// handler runs, the answer is no: its settlement may still give units back.
func (l *Ledger) waitsForTomorrow(ctx context.Context) bool {
	if l.grants.running() > 0 {
		return false
	}
	for _, one := range l.ended() {
		p := one.prompt
		if one.state != waiting {
			continue
		}
		e, err := l.planner.Explain(ctx, l.program.Queue, p.ID)
		if errors.Is(err, asynq.ErrTaskNotFound) {
			l.outcomes.end(p.ID, gaveUp, "somebody has deleted its task", false)
		}
		if err != nil || e.Expected.Before(e.Now.Add(later)) {
			return false
		}
	}
	return true
}

func (l *Ledger) show(context.Context) (over bool) {
	all := len(l.Prompts)
	pace := fmt.Sprintf("put back %d times, %d tokens in the last second", l.shaper.Stats().PutBack,
		l.grants.settledSince(l.program.Now().Add(-time.Second)))
	l.program.Progress.Show(rig.Snapshot{Elapsed: time.Since(l.began), All: int64(all),
		Ended: int64(all - l.outcomes.Left()), What: "prompts", Pace: pace})
	return false
}
