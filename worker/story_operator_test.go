package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestOperator: while tasks come, fail, panic, time out, settle, report and ask to wait, a person runs, archives,
// deletes and cancels tasks, and pauses queues and keys. No limit is over, no task is lost, none is archived while it
// waits unless the person does it, and at the end nobody stands in line and no place is taken.
func TestOperator(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for seed := range longtest.Of(uint64(1), 20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 0))
			scopes := operatorScopes(rnd)
			inBubbleWith(t, scopes, &throttle.Options{FairScope: "tenant"}, func(_ *testing.T, w *world) {
				newOperator(w, rnd).work()
			})
		})
	}
}

func operatorScopes(rnd *rand.Rand) []throttle.Scope {
	tenant := throttle.Scope{Name: "tenant", Floor: 0.3, Limits: []throttle.Limit{
		{Units: 2, Running: true, Lease: 6 * time.Second}, {Units: 20, Window: 10 * time.Second},
	}}
	if rnd.IntN(2) == 0 {
		tenant.Limits = append(tenant.Limits, throttle.PerSecond(3))
	}
	if rnd.IntN(3) == 0 {
		tenant.Margin = 500 * time.Millisecond
	}
	if rnd.IntN(3) == 0 {
		tenant.Cooldown = 300 * time.Millisecond
	}
	return []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(8)}}, tenant}
}

// operator is the person, with an account of all that happens.
type operator struct {
	w      *world
	line   *inspect.Inspector
	client *worker.Client
	queues map[string]string // of each task, by its ID
	ids    []string          // in the order in which the tasks came

	mu       sync.Mutex
	rnd      *rand.Rand
	quiet    bool // handlers succeed
	runs     []throttletest.Start
	done     map[string]bool // the task's handler has succeeded
	archived map[string]bool // by the person
	deleted  map[string]bool
}

func newOperator(w *world, rnd *rand.Rand) *operator {
	client, err := worker.NewClient(w.throttle, w.client, jobOf, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &operator{w: w, rnd: rnd, client: client, line: inspect.New(w.throttle), queues: make(map[string]string),
		done: make(map[string]bool), archived: make(map[string]bool), deleted: make(map[string]bool)}
}

func (o *operator) work() {
	cfg := asynq.Config{
		Concurrency: 8, Queues: map[string]int{"default": 2, "low": 1}, StrictPriority: o.draw(2) == 0,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
	}
	for _, s := range []*worker.Shaper{o.w.shaper, o.w.newShaper(nil)} {
		o.w.start(o.w.client, s.Configure(cfg), s.Wrap(asynq.HandlerFunc(o.handle)))
	}
	for range longtest.Of(50, 300) {
		for range 1 + o.draw(3) {
			o.ids = append(o.ids, fmt.Sprintf("%04d", len(o.ids)))
			o.send(o.ids[len(o.ids)-1])
		}
		time.Sleep(time.Duration(o.draw(600)) * time.Millisecond)
		o.act(o.ids[o.draw(len(o.ids))])
	}
	o.mu.Lock()
	o.quiet = true
	o.mu.Unlock()
	o.unpause()
	for began := time.Now(); len(o.waiting()) > 0; time.Sleep(5 * time.Second) { // to look at all costs a lot
		if time.Since(began) > time.Hour {
			o.w.t.Fatalf("these tasks have not ended: %v", o.waiting())
		}
	}
	o.check()
}

// draw returns a number from 0 to n-1. Handlers draw too.
func (o *operator) draw(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rnd.IntN(n)
}

// send enqueues a task: by asynq's client, with spare retries, or planned.
func (o *operator) send(id string) {
	if o.queues[id] == "" {
		o.queues[id] = []string{"default", "default", "low"}[o.draw(3)]
	}
	opts := []asynq.Option{asynq.TaskID(id), asynq.Queue(o.queues[id]), asynq.MaxRetry(o.draw(4)),
		asynq.Timeout(time.Duration(3+o.draw(30)) * time.Second)}
	if o.draw(4) == 0 {
		opts = append(opts, asynq.Retention(time.Hour))
	}
	h := headers(fmt.Sprintf("t%d", o.draw(4)), int64(1+o.draw(2)))
	var err error
	switch o.draw(3) {
	case 0:
		_, err = o.w.asynq.Enqueue(asynq.NewTaskWithHeaders("mail", nil, h, opts...))
	case 1:
		_, err = o.w.asynq.Enqueue(worker.NewTask("mail", nil, h, opts...))
	default:
		_, err = o.client.Enqueue(o.w.t.Context(), worker.NewTask("mail", nil, h, opts...))
	}
	if err != nil {
		o.w.t.Fatal(err)
	}
}

// act does something to a task, a queue or a key.
func (o *operator) act(id string) {
	tasks, queue, ctx := o.w.tasks, o.queues[id], o.w.t.Context()
	switch o.draw(16) {
	case 0:
		if tasks.RunTask(queue, id) == nil {
			o.archived[id] = false
		}
	case 1:
		if tasks.ArchiveTask(queue, id) == nil {
			o.archived[id] = true
		}
	case 2:
		if tasks.DeleteTask(queue, id) == nil {
			o.deleted[id] = o.draw(2) == 0
			if !o.deleted[id] {
				o.send(id)
			}
		}
	case 3:
		_ = tasks.CancelProcessing(id)
	case 4:
		_ = tasks.PauseQueue(queue)
	case 5, 6, 7:
		o.unpause()
	case 8:
		_, _ = tasks.RunAllRetryTasks(queue)
	case 9:
		_, _ = tasks.RunAllScheduledTasks(queue)
	case 10:
		_, _ = o.line.Pause(ctx, "tenant", "t1", time.Now().Add(time.Duration(o.draw(3000))*time.Millisecond))
	case 11:
		_, _ = o.w.throttle.Report(ctx, "tenant", "t2", throttle.Report{Refused: true})
	case 12:
		_, _ = tasks.RunAllArchivedTasks(queue)
		for other := range o.archived {
			o.archived[other] = o.archived[other] && o.queues[other] != queue
		}
	}
}

func (o *operator) unpause() {
	_, _ = o.w.tasks.UnpauseQueue("default"), o.w.tasks.UnpauseQueue("low") // an error says that it is not paused
}

func (o *operator) handle(ctx context.Context, _ *asynq.Task) error {
	g, _ := worker.Grant(ctx)
	id, _ := asynq.GetTaskID(ctx)
	o.mu.Lock()
	run := len(o.runs)
	o.runs = append(o.runs, throttletest.Start{At: time.Now(), Weight: g.Job.Weight, Keys: g.Job.Keys})
	o.mu.Unlock()
	took := true
	defer func() { // a panic ends the run too
		o.mu.Lock()
		defer o.mu.Unlock()
		o.runs[run].End = time.Now()
		if !took {
			o.runs[run].Weight = 0
		}
	}()
	var err error
	took, err = o.result(ctx)
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.done[id] = true
	}
	return err
}

// result is what becomes of a run, and whether it took what it was charged.
func (o *operator) result(ctx context.Context) (took bool, err error) {
	kind := o.draw(20)
	lasts, asked := time.Duration(o.draw(900))*time.Millisecond, time.Duration(o.draw(4000))*time.Millisecond
	o.mu.Lock()
	if o.quiet {
		kind = 19
	}
	o.mu.Unlock()
	if kind == 0 {
		time.Sleep(4 * time.Second) // whatever its context says
		return true, nil
	}
	select {
	case <-time.After(lasts):
	case <-ctx.Done():
		return true, ctx.Err()
	}
	switch kind {
	case 1, 2:
		return true, errors.New("no")
	case 3:
		panic("no")
	case 4:
		return false, worker.AskedToWait("tenant", asked, nil)
	case 5:
		return false, worker.Untouched(errors.New("untouched"))
	case 6:
		_, err := worker.Report(ctx, "tenant", throttle.Report{
			Limits: []throttle.ReportedLimit{{Units: -1, Remaining: int64(o.draw(5))}}})
		return true, err
	case 7:
		return true, worker.Settle(ctx, 3)
	case 8:
		return true, worker.Cooldown(ctx, "tenant", time.Second)
	case 9:
		return false, fmt.Errorf("it will never go: %w", worker.AskedToWait("tenant", 0, asynq.SkipRetry))
	}
	return true, nil
}

// waiting returns the tasks that asynq still has to run.
func (o *operator) waiting() (ids []string) {
	for _, id := range o.ids {
		info, err := o.w.tasks.GetTaskInfo(o.queues[id], id)
		if err == nil && info.State != asynq.TaskStateCompleted && info.State != asynq.TaskStateArchived {
			ids = append(ids, id)
		}
	}
	return ids
}

func (o *operator) check() {
	t := o.w.t
	for _, id := range o.ids {
		info, err := o.w.tasks.GetTaskInfo(o.queues[id], id)
		switch {
		case o.deleted[id]:
		case errors.Is(err, asynq.ErrTaskNotFound):
			if !o.done[id] {
				t.Errorf("task %s is lost", id)
			}
		case err != nil:
			t.Error(err)
		case info.State == asynq.TaskStateArchived && strings.Contains(info.LastErr, "throttled:") && !o.archived[id]:
			t.Errorf("task %s was archived while it waited: %s", id, info.LastErr)
		}
	}
	for _, over := range throttletest.Check(o.w.scopes, o.runs) {
		t.Error(over)
	}
	time.Sleep(10 * time.Second) // the last leases are over
	for i := range 4 {
		u, err := o.line.Usage(t.Context(), "tenant", fmt.Sprintf("t%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if running := u.Limits[0]; running.Used != 0 || running.Booked != 0 || u.Waiting != 0 {
			t.Errorf("of %s %d places are taken and %d booked, and %d flows wait", u.Key, running.Used, running.Booked,
				u.Waiting)
		}
	}
	t.Logf("%d tasks, %d runs", len(o.ids), len(o.runs))
}
