package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// deployed is another asynq deployment that uses the world's throttle: its tasks are in
// another Redis, or in another database of the same Redis.
type deployed struct {
	w      *world
	redis  *miniredis.Miniredis
	client *redis.Client

	mu   sync.Mutex
	runs map[string]int
}

func newDeployed(w *world, m *miniredis.Miniredis, db int) *deployed {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		DisableIdentity: true, PoolSize: 64, DB: db,
	})
	w.t.Cleanup(func() { _ = client.Close() })
	return &deployed{w: w, redis: m, client: client, runs: make(map[string]int)}
}

// elsewhere returns a deployment with a Redis of its own.
func elsewhere(w *world) *deployed {
	m := miniredis.NewMiniRedis()
	w.t.Cleanup(m.Close)
	return newDeployed(w, m, 0)
}

// shaper returns the shaper of another process of the deployment.
func (d *deployed) shaper(opts *worker.Options) *worker.Shaper {
	d.w.t.Helper()
	th, err := throttle.New(d.w.throttle.Name(), d.w.client, d.w.scopes, nil)
	if err != nil {
		d.w.t.Fatal(err)
	}
	s, err := worker.New(th, d.client, jobOf, opts)
	if err != nil {
		d.w.t.Fatal(err)
	}
	d.w.t.Cleanup(s.Stop)
	return s
}

func (d *deployed) serve(s *worker.Shaper) *asynq.Server {
	return d.w.start(d.client, s.Configure(asynq.Config{Concurrency: 8}),
		s.Wrap(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.runs[id]++
			return nil
		})))
}

func (d *deployed) enqueue(tasks int, opts ...asynq.Option) {
	client := asynq.NewClientFromRedisClient(d.client)
	for n := range tasks {
		task := worker.NewTask("mail", nil, headers("acme", 1), append(opts, asynq.TaskID(fmt.Sprintf("%06d", n)))...)
		if _, err := client.Enqueue(task); err != nil {
			d.w.t.Fatal(err)
		}
	}
}

// ran returns how many tasks have run, and checks that each ran once.
func (d *deployed) ran() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, times := range d.runs {
		if n++; times != 1 {
			d.w.t.Errorf("task %s ran %d times", id, times)
		}
	}
	return n
}

// refused fails the test unless err is a *DeploymentError.
func refused(t *testing.T, err error) *worker.DeploymentError {
	t.Helper()
	var others *worker.DeploymentError
	if !errors.As(err, &others) || others.Throttle != "world" || others.Deployment == "" || others.Owner == "" ||
		others.Deployment == others.Owner {
		t.Fatalf("got %v, want a *DeploymentError with two deployments", err)
	}
	return others
}

// TestThrottleBelongsToOneDeployment lets two asynq deployments use one throttle. The second
// gets an error; its tasks wait, and take no room from the tasks of the first, which run as
// soon as the limit allows. A minute after the first has ended, the second owns the throttle.
func TestThrottleBelongsToOneDeployment(t *testing.T) {
	t.Parallel()
	rows := map[string]func(w *world) *deployed{
		"another Redis":    elsewhere,
		"another database": func(w *world) *deployed { return newDeployed(w, w.redis, 1) },
	}
	for name, another := range rows {
		t.Run(name, func(t *testing.T) {
			inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
				const tasks = 50
				server := w.serve(asynq.Config{Concurrency: 8})
				for n := range tasks {
					w.enqueue(n, "acme", 1)
				}
				w.drained(1, time.Second)
				second := another(w)
				opts, logs := watched()
				s := second.shaper(opts)
				refused(t, s.Own(t.Context()))
				second.enqueue(tasks, asynq.MaxRetry(0))
				second.serve(s)
				w.drained(tasks, time.Minute)
				w.checked(tasks)
				w.archived(0)
				if best := optimum(w.scopes, w.starts); w.makespan() > best+time.Second {
					t.Errorf("the first one's tasks took %s, want %s as without the other", w.makespan(), best)
				}
				if got := second.ran(); got != 0 {
					t.Errorf("%d of the second one's tasks have run, want none", got)
				}
				info, err := asynq.NewInspectorFromRedisClient(second.client).GetTaskInfo("default", "000000")
				if err != nil || !strings.Contains(info.LastErr, "another asynq deployment owns") || info.Retried != 0 {
					t.Errorf("got %+v, %v; want a task that says why it waits, and no retry spent", info, err)
				}
				if errorsIn(logs) == 0 {
					t.Error("nothing is logged at error level")
				}

				w.shaper.Stop()
				server.Shutdown()
				began := time.Now()
				w.until("the second one's tasks have run", 5*time.Minute, func() bool { return second.ran() == tasks })
				if took := time.Since(began); took > time.Minute+tasks/5*time.Second+10*time.Second {
					t.Errorf("they had run %s after the first one's end, want a minute more than they take", took)
				}
				if err := s.Own(t.Context()); err != nil {
					t.Errorf("the second takes it: %v", err)
				}
				refused(t, w.newShaper(nil).Own(t.Context()))
			})
		})
	}
}

// TestManyOwnAtOnce lets the processes of two deployments begin at the same time: the processes of
// one own the throttle, the others are refused, and all errors name the same two IDs.
func TestManyOwnAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		var both [2]*deployed
		for i := range both {
			both[i] = elsewhere(w)
		}
		const processes = 16
		var all sync.WaitGroup
		var errs [2][processes]error
		for p := range processes {
			for i, d := range both {
				s := d.shaper(nil)
				all.Go(func() { errs[i][p] = s.Own(t.Context()) })
			}
		}
		all.Wait()
		refusedOnes := 0
		holders := make(map[worker.DeploymentError]bool)
		for i := range both {
			for p := range processes {
				if (errs[i][p] == nil) != (errs[i][0] == nil) {
					t.Errorf("deployment %d: process 0 got %v, process %d %v", i, errs[i][0], p, errs[i][p])
				}
				if errs[i][p] != nil {
					refusedOnes++
					holders[*refused(t, errs[i][p])] = true
				}
			}
		}
		if refusedOnes != processes || len(holders) != 1 {
			t.Errorf("%d were refused, by %v; want all %d of one, by one other", refusedOnes, holders, processes)
		}
	})
}

// TestDeploymentSurvivesLosses deletes the keys of a deployment, from asynq's Redis and from the
// throttle's, while it runs: the deployment goes on, a process that has just begun soon belongs
// to it again, and another deployment is still refused.
func TestDeploymentSurvivesLosses(t *testing.T) {
	t.Parallel()
	rows := map[string]func(w *world, d *deployed){
		"asynq's Redis loses the ID":     func(_ *world, d *deployed) { d.redis.Del("asynq:throttle:deployment") },
		"the throttle's loses the owner": func(w *world, _ *deployed) { w.redis.Del("thr:{world}:asynq") },
	}
	for name, lose := range rows {
		t.Run(name, func(t *testing.T) {
			inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
				first := elsewhere(w)
				first.enqueue(200)
				s := first.shaper(nil)
				first.serve(s)
				time.Sleep(time.Second)
				lose(w, first)
				time.Sleep(time.Second)
				newcomer := first.shaper(nil)
				_ = newcomer.Own(t.Context())
				time.Sleep(20 * time.Second)
				for who, shaper := range map[string]*worker.Shaper{"who was there": s, "who has come": newcomer} {
					if err := shaper.Own(t.Context()); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				}
				refused(t, elsewhere(w).shaper(nil).Own(t.Context()))
				w.until("all tasks have run", 2*time.Minute, func() bool { return first.ran() == 200 })
			})
		})
	}
}

// TestOwnerThatCannotBeAsked: the user of asynq's Redis has no right to the key. Since no other
// deployment is known, tasks run, and the log says what is not known.
func TestOwnerThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		barred := bubbleClient(t, w.redis)
		barred.AddHook(barring("asynq:throttle:deployment"))
		opts, logs := watched()
		s, err := worker.New(w.throttle, barred, jobOf, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		var others *worker.DeploymentError
		if err := s.Own(t.Context()); err == nil || errors.As(err, &others) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("got %v, want what Redis said", err)
		}
		w.serveWith(s, asynq.Config{Concurrency: 8})
		for n := range 20 {
			w.enqueue(n, "acme", 1)
		}
		w.drained(20, 10*time.Second)
		w.checked(20)
		if logs.FilterMessageSnippet("it is not known whether").Len() != 1 {
			t.Error("nothing is logged, or more than once a minute")
		}
	})
}

// barring refuses commands about one key, as an ACL does.
type barring string

// DialHook implements redis.Hook.
func (barring) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (b barring) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == string(b) {
			err := errors.New("NOPERM this user has no permissions to access one of the keys used as arguments")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (barring) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestClientOfAnotherDeploymentPlansNothing enqueues through a Client whose deployment does not
// own the throttle: the tasks are enqueued, and reserve nothing.
func TestClientOfAnotherDeploymentPlansNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, 10*time.Second), func(t *testing.T, w *world) {
		if err := w.shaper.Own(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := elsewhere(w)
		opts, logs := watched()
		client, err := worker.NewClient(w.throttle, other.client, jobOf, opts)
		if err != nil {
			t.Fatal(err)
		}
		var tasks []*asynq.Task
		for range 5 {
			tasks = append(tasks, worker.NewTask("mail", nil, headers("acme", 1)))
		}
		plan, err := client.EnqueueAll(t.Context(), tasks)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range plan.Tasks {
			if p.Info == nil || p.Info.State != asynq.TaskStatePending || p.Reservation.Outcome != 0 {
				t.Errorf("task %d: got %+v, want it enqueued and not planned", i, p)
			}
		}
		if used, booked := w.used("acme"); used != 0 || booked != 0 {
			t.Errorf("used %d and booked %d, want nothing", used, booked)
		}
		if errorsIn(logs) != 1 {
			t.Errorf("%d errors are logged, want one", errorsIn(logs))
		}
		ours, err := worker.NewClient(w.throttle, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Enqueue(t.Context(), tasks[0]); err != nil {
			t.Fatal(err)
		}
		if p, err := ours.Enqueue(t.Context(), tasks[1]); err != nil || p.Reservation.Outcome == 0 {
			t.Errorf("the throttle's own: got %+v, %v; want it planned", p, err)
		}
	})
}

// TestClientsFirstTasksWaitForTheOwner: many tasks are enqueued through a Client before it knows which deployment owns
// the throttle. All of them wait for the first answer, and none is planned. Without an answer in time all of them are
// planned, and no later one waits again until the next question.
func TestClientsFirstTasksWaitForTheOwner(t *testing.T) {
	t.Parallel()
	const within, tasks = 250 * time.Millisecond, 10
	for name, row := range map[string]struct {
		takes, waits time.Duration // the answer; each task
		planned      int
	}{
		"an answer":         {100 * time.Millisecond, 100 * time.Millisecond, 0},
		"no answer in time": {time.Second, within, tasks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(tasks, time.Hour), func(t *testing.T, w *world) {
				if err := w.shaper.Own(t.Context()); err != nil {
					t.Fatal(err)
				}
				other := elsewhere(w)
				other.client.AddHook(&slowOnce{key: "asynq:throttle:deployment", takes: row.takes})
				client, err := worker.NewClient(w.throttle, other.client, jobOf, nil)
				if err != nil {
					t.Fatal(err)
				}
				enqueue := func() (planned bool, took time.Duration) {
					began := time.Now()
					p, err := client.Enqueue(t.Context(), worker.NewTask("mail", nil, headers("acme", 1)))
					if err != nil {
						t.Error(err)
					}
					return p.Reservation.Outcome != 0, time.Since(began)
				}
				var all sync.WaitGroup
				var planned atomic.Int64
				for range tasks {
					all.Go(func() {
						is, took := enqueue()
						if is {
							planned.Add(1)
						}
						if took < row.waits || took >= row.waits+10*time.Millisecond {
							t.Errorf("a task took %s, want %s", took, row.waits)
						}
					})
				}
				all.Wait()
				if used, booked := w.used("acme"); planned.Load() != int64(row.planned) || used+booked != int64(row.planned) {
					t.Errorf("%d tasks are planned, used %d and booked %d; want %d", planned.Load(), used, booked, row.planned)
				}
				if _, took := enqueue(); took >= 10*time.Millisecond {
					t.Errorf("a later task took %s, want it not to wait", took)
				}
				time.Sleep(2 * time.Second) // the late answer has come
				if is, _ := enqueue(); is {
					t.Error("a task is planned after the answer")
				}
			})
		})
	}
}

// slowOnce delays the first command about one key.
type slowOnce struct {
	key   string
	takes time.Duration
	was   atomic.Bool
}

// DialHook implements redis.Hook.
func (*slowOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (s *slowOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == s.key && s.was.CompareAndSwap(false, true) {
			time.Sleep(s.takes)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (*slowOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
