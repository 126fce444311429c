package worker_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestUpstreamFact_OptionsOfATask: a Client reads a task's own options where asynq keeps them,
// see taskoptions.go. If this test fails, look there: a Client would plan nothing.
func TestUpstreamFact_OptionsOfATask(t *testing.T) {
	t.Parallel()
	field, has := reflect.TypeFor[asynq.Task]().FieldByName("opts")
	if !has || field.Type != reflect.TypeFor[[]asynq.Option]() {
		t.Errorf("a task keeps its options in %v, it was a slice called opts", field)
	}
}

// ways are the ways to give a task an option.
var ways = map[string]func(tenant string, opts []asynq.Option) (*asynq.Task, []asynq.Option){
	"NewTask": func(tenant string, opts []asynq.Option) (*asynq.Task, []asynq.Option) {
		return worker.NewTask("mail", []byte(tenant), headers(tenant, 1), opts...), nil
	},
	"asynq.NewTask": func(tenant string, opts []asynq.Option) (*asynq.Task, []asynq.Option) {
		return asynq.NewTaskWithHeaders("mail", []byte(tenant), headers(tenant, 1), opts...), nil
	},
	"Enqueue": func(tenant string, opts []asynq.Option) (*asynq.Task, []asynq.Option) {
		return worker.NewTask("mail", []byte(tenant), headers(tenant, 1)), opts
	},
}

// TestClientPassesOptions: each option of asynq does what it does without a Client,
// however it is given, and the plan is made for the task's own ID and queue.
func TestClientPassesOptions(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		client := w.newClient()
		at := w.began.Add(90 * time.Minute).Truncate(time.Second)
		retries := map[string]int{"NewTask": asynqsRetries + 10, "asynq.NewTask": asynqsRetries,
			"Enqueue": asynqsRetries + 10}
		rows := []struct {
			name   string
			opts   []asynq.Option
			queue  string
			id     string
			kept   bool // the user's time, or group, instead of a plan
			differ func(way string, info *asynq.TaskInfo) bool
		}{
			{name: "none", differ: func(way string, info *asynq.TaskInfo) bool {
				return info.MaxRetry != retries[way] || info.Timeout != 30*time.Minute
			}},
			{name: "nil", opts: []asynq.Option{nil}},
			{name: "TaskID", opts: []asynq.Option{asynq.TaskID("mine")}, id: "mine"},
			{name: "TaskID twice", opts: []asynq.Option{asynq.TaskID("a"), asynq.TaskID("b")}, id: "b"},
			{name: "TaskID of any bytes", opts: []asynq.Option{asynq.TaskID("a/b {c}:é")}, id: "a/b {c}:é"},
			{name: "Queue", opts: []asynq.Option{asynq.Queue("Critical/1")}, queue: "Critical/1"},
			{name: "Queue and TaskID", opts: []asynq.Option{asynq.Queue("low"), asynq.TaskID("mine")}, queue: "low", id: "mine"},
			{name: "Deadline", opts: []asynq.Option{asynq.Deadline(at)}, differ: func(_ string, info *asynq.TaskInfo) bool {
				return !info.Deadline.Equal(at)
			}},
			{name: "Timeout", opts: []asynq.Option{asynq.Timeout(77 * time.Second)},
				differ: func(_ string, info *asynq.TaskInfo) bool {
					return info.Timeout != 77*time.Second
				}},
			{name: "Retention", opts: []asynq.Option{asynq.Retention(3 * time.Hour)},
				differ: func(_ string, info *asynq.TaskInfo) bool {
					return info.Retention != 3*time.Hour
				}},
			{name: "MaxRetry", opts: []asynq.Option{asynq.MaxRetry(3)}, differ: func(way string, info *asynq.TaskInfo) bool {
				return info.MaxRetry != map[string]int{"NewTask": 13, "asynq.NewTask": 3, "Enqueue": 3}[way]
			}},
			{name: "Unique", opts: []asynq.Option{asynq.Unique(time.Hour)}},
			{name: "ProcessAt", opts: []asynq.Option{asynq.ProcessAt(at)}, kept: true,
				differ: func(_ string, info *asynq.TaskInfo) bool {
					return !info.NextProcessAt.Equal(at)
				}},
			{name: "ProcessIn", opts: []asynq.Option{asynq.ProcessIn(time.Hour)}, kept: true,
				differ: func(_ string, info *asynq.TaskInfo) bool {
					return info.NextProcessAt.Sub(time.Now().Add(time.Hour)).Abs() > time.Second
				}},
			{name: "ProcessAt and TaskID", opts: []asynq.Option{asynq.ProcessAt(at), asynq.TaskID("later")},
				id: "later", kept: true},
			{name: "Group", opts: []asynq.Option{asynq.Group("batch")}, kept: true,
				differ: func(_ string, info *asynq.TaskInfo) bool {
					return info.Group != "batch" || info.State != asynq.TaskStateAggregating
				}},
		}
		for n, row := range rows {
			for way, give := range ways {
				what, tenant := row.name+" by "+way, fmt.Sprint(way, n)
				if row.name == "nil" && way == "NewTask" {
					continue // which looks at each
				}
				// so that the next has to wait
				if _, err := client.Enqueue(t.Context(), worker.NewTask("mail", nil, headers(tenant, 1))); err != nil {
					t.Fatal(err)
				}
				task, opts := give(tenant, row.opts)
				given := slices.Clone(opts)
				p, err := client.Enqueue(t.Context(), task, opts...)
				if err != nil || p.Err != nil || p.Info == nil {
					t.Errorf("%s: got %+v, %v", what, p, err)
					continue
				}
				queue := row.queue
				if queue == "" {
					queue = "default"
				}
				info, err := w.tasks.GetTaskInfo(queue, p.Info.ID)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				if row.id != "" && info.ID != row.id || !slices.Equal(given, opts) {
					t.Errorf("%s: its ID is %q, options %v", what, info.ID, opts)
				}
				if row.differ != nil && row.differ(way, info) {
					t.Errorf("%s: asynq has %+v", what, info)
				}
				if row.kept {
					if p.Reservation.Outcome != 0 || !p.Start.IsZero() {
						t.Errorf("%s: planned for %s, want the user's own time", what, p.Start)
					}
				} else {
					want := fmt.Sprintf("asynq:%s/%s/0",
						map[bool]string{true: "Critical%2F1", false: queue}[queue == "Critical/1"], info.ID)
					if r := p.Reservation; r.Outcome != throttle.Waiting || r.Job.ID != want || !p.Start.Equal(r.Start) {
						t.Errorf("%s: job %s is %s, want %s to wait", what, r.Job.ID, r.Outcome, want)
					}
					if info.State != asynq.TaskStateScheduled || info.NextProcessAt.Before(p.Start) {
						t.Errorf("%s: asynq has it %s for %s; it is to start at %s", what, info.State, info.NextProcessAt, p.Start)
					}
				}
				if row.name == "Unique" {
					if _, err := client.Enqueue(t.Context(), task, opts...); !errors.Is(err, asynq.ErrDuplicateTask) {
						t.Errorf("%s: a second time: %v", what, err)
					}
				}
				if err := w.tasks.DeleteTask(queue, info.ID); err != nil { // the ID is needed again
					t.Errorf("%s: %v", what, err)
				}
			}
		}
	})
}

// asynqsRetries is the MaxRetry of a task without that option.
const asynqsRetries = 25

// holds returns how many units are booked for a tenant, and how many of its jobs wait.
func (w *world) holds(tenant string) (booked, waiting int64) {
	w.t.Helper()
	_, booked = w.used(tenant)
	return booked, int64(len(w.inLine(tenant)))
}

// lookaheads are the default, with which most jobs wait in line, and one with which all jobs are
// booked.
var lookaheads = map[string]time.Duration{"in line": time.Second, "booked": farAhead}

// TestClientGivesBack: a task that asynq refuses keeps no reservation, and takes none from an
// existing task with the same ID.
func TestClientGivesBack(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	rows := []struct {
		name   string
		ctx    context.Context
		before func(t *testing.T, w *world) // what is there
		cut    bool                         // asynq's Redis is away
		opts   []asynq.Option
		is     error // nil: any
		more   int64 // jobs that are held afterwards
	}{
		{name: "Unique", opts: []asynq.Option{asynq.Unique(time.Hour)}, is: asynq.ErrDuplicateTask, more: 1,
			before: func(t *testing.T, w *world) {
				w.plan(t, "", asynq.Unique(time.Hour))
			}},
		{name: "TaskID of one that is planned", opts: []asynq.Option{asynq.TaskID("mine")},
			is: asynq.ErrTaskIDConflict, more: 1, before: func(t *testing.T, w *world) {
				w.plan(t, "mine")
			}},
		{name: "TaskID and Unique of one that is planned",
			opts: []asynq.Option{asynq.TaskID("mine"), asynq.Unique(time.Hour)}, is: asynq.ErrDuplicateTask,
			more: 1, before: func(t *testing.T, w *world) {
				w.plan(t, "mine", asynq.Unique(time.Hour))
			}},
		{name: "TaskID of one that is done", opts: []asynq.Option{asynq.TaskID("done")},
			is: asynq.ErrTaskIDConflict, before: func(t *testing.T, w *world) {
				w.leave(t, "done", asynq.TaskStateCompleted)
			}},
		{name: "TaskID of one that is archived", opts: []asynq.Option{asynq.TaskID("failed")},
			is: asynq.ErrTaskIDConflict, before: func(t *testing.T, w *world) {
				w.leave(t, "failed", asynq.TaskStateArchived)
			}},
		{name: "TaskID of one that has failed once", opts: []asynq.Option{asynq.TaskID("again")},
			is: asynq.ErrTaskIDConflict, before: func(t *testing.T, w *world) {
				w.leave(t, "again", asynq.TaskStateRetry)
			}},
		{name: "blank TaskID", opts: []asynq.Option{asynq.TaskID(" ")}},
		{name: "empty TaskID", opts: []asynq.Option{asynq.TaskID("")}},
		{name: "Unique of a moment", opts: []asynq.Option{asynq.Unique(time.Millisecond)}},
		{name: "no Queue", opts: []asynq.Option{asynq.Queue("")}},
		{name: "context ended", ctx: ended, is: context.Canceled},
		{name: "asynq's Redis away", cut: true, is: errCut},
		{name: "asynq's Redis away, TaskID of one that is planned", cut: true,
			opts: []asynq.Option{asynq.TaskID("mine")}, is: errCut, more: 1, before: func(t *testing.T, w *world) {
				w.plan(t, "mine")
			}},
	}
	enqueues := map[string]func(ctx context.Context, c *worker.Client, task *asynq.Task,
		opts ...asynq.Option) (worker.Planned, error){
		"Enqueue": func(ctx context.Context, c *worker.Client, task *asynq.Task,
			opts ...asynq.Option) (worker.Planned, error) {
			return c.Enqueue(ctx, task, opts...)
		},
		"EnqueueAll": func(ctx context.Context, c *worker.Client, task *asynq.Task,
			opts ...asynq.Option) (worker.Planned, error) {
			plan, err := c.EnqueueAll(ctx, []*asynq.Task{task}, opts...)
			return plan.Tasks[0], err
		},
	}
	for _, row := range rows {
		for kind, lookahead := range lookaheads {
			for call, enqueue := range enqueues {
				t.Run(row.name+", "+kind+", by "+call, func(t *testing.T) {
					inBubbleWith(t, perTenant(1, 10*time.Second), &throttle.Options{Lookahead: lookahead},
						func(t *testing.T, w *world) {
							wire := newWire(w)
							client, err := worker.NewClient(w.throttle, wire.client, jobOf, nil)
							if err != nil {
								t.Fatal(err)
							}
							if row.before != nil {
								row.before(t, w)
							}
							if _, err := w.throttle.Reserve(t.Context(),
								throttle.Job{ID: "other", Weight: 1, Keys: map[string]string{"tenant": "acme"}}); err != nil {
								t.Fatal(err)
							}
							booked, waiting := w.holds("acme")
							if row.cut {
								wire.cut()
							}
							ctx := row.ctx
							if ctx == nil {
								ctx = t.Context()
							}
							p, err := enqueue(ctx, client, worker.NewTask("mail", nil, headers("acme", 1)), row.opts...)
							if err == nil || p.Err == nil || row.is != nil &&
								(!errors.Is(err, row.is) || !errors.Is(p.Err, row.is)) || p.Info != nil || !p.Start.IsZero() {
								t.Errorf("got %+v, %v; want %v", p, err, row.is)
							}
							if b, n := w.holds("acme"); b != booked || n != waiting || b+n < row.more {
								t.Errorf("%d units are booked and %d jobs wait, before it were %d and %d", b, n, booked, waiting)
							}
						})
				})
			}
		}
	}
}

// plan enqueues a planned task of acme, which then has a booking or waits.
func (w *world) plan(t *testing.T, id string, opts ...asynq.Option) {
	t.Helper()
	if id != "" {
		opts = append(opts, asynq.TaskID(id))
	}
	if _, err := w.throttle.Reserve(t.Context(),
		throttle.Job{ID: "first", Weight: 1, Keys: map[string]string{"tenant": "acme"}}); err != nil {
		t.Fatal(err)
	}
	p, err := w.newClient().Enqueue(t.Context(), worker.NewTask("mail", nil, headers("acme", 1), opts...))
	if err != nil || p.Reservation.Outcome == 0 {
		t.Fatal(p, err)
	}
}

// leave brings a task of another tenant into a state that it reaches by running.
func (w *world) leave(t *testing.T, id string, state asynq.TaskState) {
	t.Helper()
	if state != asynq.TaskStateCompleted {
		w.result = func(context.Context, *asynq.Task) error { return errBroken }
	}
	retries := 0
	if state == asynq.TaskStateRetry {
		retries = 5
	}
	server := w.serve(asynq.Config{Concurrency: 1,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }})
	w.send(worker.NewTask("mail", nil, headers("other", 1), asynq.TaskID(id), asynq.MaxRetry(retries),
		asynq.Retention(time.Hour)))
	w.until("it has run", time.Minute, w.in(id, state))
	w.shaper.Stop()
	server.Shutdown()
}

// lostAnswers is a connection to Redis that loses answers while the caller gives up.
type lostAnswers struct {
	giveUp context.CancelFunc // nil: answers arrive
}

func (l *lostAnswers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lostAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && cmd.Name() == "evalsha" && l.giveUp != nil {
			l.giveUp()
			l.giveUp = nil
			err = context.Canceled
			cmd.SetErr(err)
		}
		return err
	}
}

func (l *lostAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil && cmds[0].Name() == "evalsha" && l.giveUp != nil {
			l.giveUp()
			l.giveUp = nil
			err = context.Canceled
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// TestClientGivesBackWhatItMayHave: if the context ends while the throttle answers, the Client gives
// back what may have been reserved.
func TestClientGivesBackWhatItMayHave(t *testing.T) {
	t.Parallel()
	for kind, lookahead := range lookaheads {
		for _, tasks := range []int{1, 2, 5} { // one is asked for alone, more are at once
			t.Run(fmt.Sprint(kind, " ", tasks), func(t *testing.T) {
				inBubbleWith(t, perTenant(1, 10*time.Second), &throttle.Options{Lookahead: lookahead},
					func(t *testing.T, w *world) {
						lost, client := new(lostAnswers), bubbleClient(t, w.redis)
						client.AddHook(lost)
						th, err := throttle.New("world", client, w.scopes, &throttle.Options{Lookahead: lookahead})
						if err != nil {
							t.Fatal(err)
						}
						if _, err := th.Reserve(t.Context(),
							throttle.Job{ID: "first", Weight: 1, Keys: map[string]string{"tenant": "acme"}}); err != nil {
							t.Fatal(err)
						}
						c, err := worker.NewClient(th, w.client, jobOf, nil)
						if err != nil {
							t.Fatal(err)
						}
						ctx, cancel := context.WithCancel(t.Context())
						lost.giveUp = cancel
						plan, err := c.EnqueueAll(ctx, mails(tasks, light, "acme"))
						if !errors.Is(err, context.Canceled) {
							t.Errorf("got %v", err)
						}
						for i, p := range plan.Tasks {
							if p.Info != nil || !errors.Is(p.Err, context.Canceled) {
								t.Errorf("task %d: got %+v", i, p)
							}
						}
						if booked, waiting := w.holds("acme"); booked != 0 || waiting != 0 {
							t.Errorf("%d units are booked and %d jobs wait, want none", booked, waiting)
						}
					})
			})
		}
	}
}

// TestClientRefuses: a task that can never start is not enqueued, with the throttle's
// error; the others of its batch are.
func TestClientRefuses(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		var never *throttle.NeverFitsError
		var invalid *throttle.InvalidJobError
		client, err := worker.NewClient(w.throttle, w.client,
			func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
				switch task.Headers()["tenant"] {
				case "fails":
					return throttle.Job{}, errNoTenant
				case "panics":
					panic("no such field")
				}
				return jobOf(ctx, task)
			}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tasks := []*asynq.Task{
			worker.NewTask("mail", nil, headers("acme", 1), asynq.TaskID("fine")),
			worker.NewTask("mail", nil, headers("acme", 6), asynq.TaskID("heavy")),
			worker.NewTask("mail", nil, headers("acme", 0), asynq.TaskID("light")),
			worker.NewTask("mail", nil, headers("fails", 1), asynq.TaskID("fails")),
			worker.NewTask("mail", nil, headers("panics", 1), asynq.TaskID("panics")),
			nil,
			worker.NewTask("mail", nil, headers("acme", 5), asynq.TaskID("fine too")),
		}
		plan, err := client.EnqueueAll(t.Context(), tasks)
		if !errors.As(err, &never) || !errors.As(err, &invalid) || !errors.Is(err, errNoTenant) {
			t.Errorf("got %v, want all errors", err)
		}
		for i, p := range plan.Tasks {
			if fine := i == 0 || i == 6; (p.Err == nil) != fine || (p.Info != nil) != fine {
				t.Errorf("task %d: got %+v", i, p)
			}
		}
		if !errors.As(plan.Tasks[1].Err, &never) || never.Weight != 6 || !errors.As(plan.Tasks[2].Err, &invalid) ||
			invalid.Field != "Weight" {
			t.Errorf("got %v and %v", plan.Tasks[1].Err, plan.Tasks[2].Err)
		}
		for _, id := range []string{"heavy", "light", "fails", "panics"} {
			if info := w.task(id); info != nil {
				t.Errorf("task %s is there: %+v", id, info)
			}
		}
		if p, err := client.Enqueue(t.Context(), tasks[1]); !errors.As(err, &never) || p.Info != nil {
			t.Errorf("Enqueue: got %+v, %v", p, err)
		}
		if plan, err := client.EnqueueAll(t.Context(), nil); err != nil || len(plan.Tasks) != 0 || !plan.Last.IsZero() {
			t.Errorf("no tasks: got %+v, %v", plan, err)
		}
	})
}

// TestClientFillsInTheNonce: a nonce that the user's function sets goes nowhere, whether or not it is one.
func TestClientFillsInTheNonce(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Hour), func(t *testing.T, w *world) {
		for n, nonce := range []string{"chosen", "not a nonce"} {
			client, err := worker.NewClient(w.throttle, w.client,
				func(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
					job, err := jobOf(ctx, task)
					job.Nonce = nonce
					return job, err
				}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := client.Enqueue(t.Context(), worker.NewTask("mail", nil, headers("acme", 1), asynq.TaskID(fmt.Sprint(n))))
			if err != nil || p.Reservation.Outcome == 0 || p.Reservation.Job.Nonce != "" {
				t.Errorf("%q: got %+v, %v; want it planned, without the nonce", nonce, p, err)
			}
			if _, err := client.Explain(t.Context(), "default", fmt.Sprint(n)); err != nil {
				t.Errorf("%q: explained: %v", nonce, err)
			}
		}
	})
}

// TestNewClientRefusesWrongArguments: the error names the wrong argument.
func TestNewClientRefusesWrongArguments(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		rows := []struct {
			field string
			make  func() (*worker.Client, error)
		}{
			{"th", func() (*worker.Client, error) { return worker.NewClient(nil, w.client, jobOf, nil) }},
			{"client", func() (*worker.Client, error) { return worker.NewClient(w.throttle, nil, jobOf, nil) }},
			{"client", func() (*worker.Client, error) {
				return worker.NewClient(w.throttle, (*redis.ClusterClient)(nil), jobOf, nil)
			}},
			{"job", func() (*worker.Client, error) { return worker.NewClient(w.throttle, w.client, nil, nil) }},
			{"MaxWait", func() (*worker.Client, error) {
				return worker.NewClient(w.throttle, w.client, jobOf, &worker.Options{MaxWait: time.Hour})
			}},
		}
		for i, row := range rows {
			c, err := row.make()
			var option *throttle.OptionError
			if c != nil || !errors.As(err, &option) || option.Field != row.field {
				t.Errorf("row %d: got %v and %v, want an *OptionError of %s", i, c, err, row.field)
			}
		}
	})
}

// TestClientWithoutADecision: while the throttle's Redis is away, or a limit is set below a task's
// weight, tasks are enqueued unplanned. They run when that is over.
func TestClientWithoutADecision(t *testing.T) {
	t.Parallel()
	const tasks = 250
	inBubble(t, perTenant(50, time.Second), func(t *testing.T, w *world) {
		wire := newWire(w)
		th, err := throttle.New("world", wire.client, w.scopes, nil)
		if err != nil {
			t.Fatal(err)
		}
		client, err := worker.NewClient(th, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		wire.cut()
		began := time.Now()
		plan, err := client.EnqueueAll(t.Context(), mails(tasks, light))
		if err != nil || !plan.Last.IsZero() {
			t.Errorf("Redis away: got %v, planned until %s", err, plan.Last)
		}
		// A pipeline and the calls until the breaker opens, and one each time that it
		// tries again.
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
		wire.mend()
		if err := inspect.New(w.throttle).SetLimits(t.Context(), "tenant", "few",
			[]throttle.Limit{throttle.PerSecond(2)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the breaker closes
		p, err := client.Enqueue(t.Context(), worker.NewTask("mail", nil, headers("few", 3), asynq.TaskID("few")))
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range append(plan.Tasks, p) {
			if p.Info == nil || p.Info.State != asynq.TaskStatePending || p.Reservation.Outcome != 0 || !p.Start.IsZero() {
				t.Errorf("task %d: got %+v", i, p)
			}
		}
		w.serve(asynq.Config{Concurrency: 16})
		w.drained(tasks, time.Minute)
		if err := inspect.New(w.throttle).ResetLimits(t.Context(), "tenant", "few"); err != nil {
			t.Fatal(err)
		}
		w.drained(tasks+1, time.Minute)
		w.checked(tasks + 1)
		w.archived(0)
	})
}

// TestClientBeforeWorkers: tasks whose slots have long passed when the first worker
// comes run under the limits like any others, in two processes too.
func TestClientBeforeWorkers(t *testing.T) {
	t.Parallel()
	const tasks = 240
	for kind, lookahead := range lookaheads {
		t.Run(kind, func(t *testing.T) {
			inBubbleWith(t, quotas(2*time.Second, throttle.Exact), &throttle.Options{Lookahead: lookahead},
				func(t *testing.T, w *world) {
					var left []*asynq.Task
					for i := range tasks {
						left = append(left, worker.NewTask("mail", nil, headers(fmt.Sprint("t", i%3), int64(1+i%2)),
							asynq.TaskID(fmt.Sprintf("%06d", i)), asynq.MaxRetry(0)))
					}
					clients := []*worker.Client{w.newClient(), w.newClient()}
					for n, client := range clients {
						plan, err := client.EnqueueAll(t.Context(), left[n*tasks/2:(n+1)*tasks/2])
						if err != nil || plan.Last.IsZero() {
							t.Fatal(plan.Last, err)
						}
					}
					time.Sleep(7 * time.Minute)
					w.serve(asynq.Config{Concurrency: 8})
					w.serveWith(w.newShaper(nil), asynq.Config{Concurrency: 8})
					w.drained(tasks, time.Hour)
					w.checked(tasks)
					w.archived(0)
					if booked, waiting := w.holds("t0"); booked != 0 || waiting != 0 {
						t.Errorf("%d units are booked and %d jobs wait when all have run", booked, waiting)
					}
				})
		})
	}
}

// TestClientTwoProcesses: two processes plan tasks at the same time for the workers of two others.
// Each task runs once, at its planned time, within the limits.
func TestClientTwoProcesses(t *testing.T) {
	t.Parallel()
	const tasks = 280 // the last window has room: a unit that a plan made amid the other takes for used costs no window
	inBubble(t, quotas(2*time.Second, throttle.Exact), func(t *testing.T, w *world) {
		shapers := []*worker.Shaper{w.shaper, w.newShaper(nil)}
		for _, s := range shapers {
			w.serveWith(s, asynq.Config{Concurrency: 8})
		}
		all := mails(tasks, light, "t0", "t1")
		done := make(chan worker.Plan)
		for n := range 2 {
			go func() {
				plan, err := w.newClient().EnqueueAll(t.Context(), all[n*tasks/2:(n+1)*tasks/2], asynq.MaxRetry(1))
				if err != nil {
					t.Error(err)
				}
				done <- plan
			}()
		}
		first, second := <-done, <-done
		w.drained(tasks, time.Hour)
		w.checked(tasks)
		w.archived(0)
		putBack := int64(0)
		for _, s := range shapers {
			putBack += s.Stats().PutBack
		}
		if float64(putBack)/tasks > 0.1 {
			t.Errorf("%d of %d tasks were put back", putBack, tasks)
		}
		last := slices.MaxFunc([]time.Time{first.Last, second.Last}, time.Time.Compare).Sub(w.began)
		if off := (w.makespan() - last).Abs(); off > max(time.Second, last/50) {
			t.Errorf("the last starts after %s, it was to be %s", w.makespan(), last)
		}
	})
}

// TestClientSpareRetry: planned tasks without a retry of their own are never archived by a
// put-back, and tasks that fail have their one attempt.
func TestClientSpareRetry(t *testing.T) {
	t.Parallel()
	const tasks = 60
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		w.result = func(_ context.Context, task *asynq.Task) error {
			if task.Headers()["tenant"] == "broken" {
				return errBroken
			}
			return nil
		}
		client := w.newClient()
		var planned []*asynq.Task
		for i := range tasks {
			planned = append(planned, worker.NewTask("mail", nil, headers("acme", 1),
				asynq.TaskID(fmt.Sprintf("%06d", i)), asynq.MaxRetry(0)))
		}
		planned = append(planned, worker.NewTask("mail", nil, headers("broken", 1), asynq.TaskID("broken"),
			asynq.MaxRetry(0)))
		if _, err := client.EnqueueAll(t.Context(), planned); err != nil {
			t.Fatal(err)
		}
		// Run by hand long before their time: they are put back.
		if n, err := w.tasks.RunAllScheduledTasks("default"); err != nil || n < tasks/2 {
			t.Fatalf("%d tasks run by hand: %v", n, err)
		}
		w.serve(asynq.Config{Concurrency: 8})
		w.drained(tasks, time.Minute)
		w.until("the broken one is archived", time.Minute, w.in("broken", asynq.TaskStateArchived))
		w.checked(tasks + 1)
		w.archived(1)
		if w.shaper.Stats().PutBack < tasks/2 {
			t.Errorf("%d put-backs: nothing was put to the test", w.shaper.Stats().PutBack)
		}
	})
}

// TestClientSameTaskAgain: one task that is enqueued many times is as many tasks, each
// with an ID of its own.
func TestClientSameTaskAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		// With room behind its options, where asynq's own append would write.
		task := asynq.NewTaskWithHeaders("mail", nil, headers("acme", 1),
			append(make([]asynq.Option, 0, 8), asynq.MaxRetry(3))...)
		tasks := slices.Repeat([]*asynq.Task{task}, 40)
		plan, err := w.newClient().EnqueueAll(t.Context(), tasks)
		if err != nil {
			t.Fatal(err)
		}
		ids := make(map[string]bool)
		for _, p := range plan.Tasks {
			ids[p.Info.ID] = true
			if want := "asynq:default/" + p.Info.ID + "/0"; p.Reservation.Job.ID != want {
				t.Errorf("planned for job %s, want %s", p.Reservation.Job.ID, want)
			}
		}
		if len(ids) != len(tasks) {
			t.Errorf("%d IDs of %d tasks", len(ids), len(tasks))
		}
		w.serve(asynq.Config{Concurrency: 8})
		w.drained(len(tasks), time.Minute)
		w.checked(len(tasks))
	})
}

// TestTaskOfManyGoroutines: many goroutines enqueue the same task, each with options of its own,
// and each of the enqueued tasks has the options of its goroutine.
func TestTaskOfManyGoroutines(t *testing.T) {
	t.Parallel()
	connection := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), PoolSize: 300})
	t.Cleanup(func() { _ = connection.Close() })
	th, err := throttle.New("shared", connection, perTenant(1000, time.Second), &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	plans, err := worker.NewClient(th, connection, jobOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	plain := asynq.NewClientFromRedisClient(connection)
	task := worker.NewTask("mail", nil, headers("acme", 1), asynq.Queue("default"), asynq.Retention(time.Hour))
	var all sync.WaitGroup
	for n := range 300 {
		all.Go(func() {
			id := fmt.Sprint("task", n)
			enqueue := func() (*asynq.TaskInfo, error) { return plain.Enqueue(task, asynq.TaskID(id)) }
			if n%2 == 0 {
				enqueue = func() (*asynq.TaskInfo, error) {
					planned, err := plans.Enqueue(t.Context(), task, asynq.TaskID(id))
					return planned.Info, err
				}
			}
			if info, err := enqueue(); err != nil || info.ID != id {
				t.Errorf("%s is enqueued as %+v, %v", id, info, err)
			}
		})
	}
	all.Wait()
}
