package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// seenWithin is how soon after its deadline a waiting task is ended: asynq's times have whole
// seconds, and its server looks for due tasks twice a second.
const seenWithin = 2 * time.Second

// endings are the tasks that Options.Expired was called for.
type endings struct {
	mu   sync.Mutex
	late map[string]time.Duration // after the deadline, the last call
}

// expired returns an Options.Expired that returns what then returns.
func (e *endings) expired(then func() error) func(context.Context, *asynq.Task, *throttle.DeadlineError) error {
	return func(ctx context.Context, _ *asynq.Task, late *throttle.DeadlineError) error {
		id, _ := asynq.GetTaskID(ctx)
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.late == nil {
			e.late = make(map[string]time.Duration)
		}
		e.late[id] = time.Since(late.Deadline)
		return then()
	}
}

func (e *endings) of(id string) (late time.Duration, is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	late, is = e.late[id]
	return late, is
}

// TestExpiryWhileItWaits: a job's deadline passes while its task waits, however it waits. The task
// is ended soon after, once, without a start, and leaves the line.
func TestExpiryWhileItWaits(t *testing.T) {
	t.Parallel()
	const within = 40 * time.Second
	expiring := func(w *world) { w.enqueue(60, "acme", 1, worker.ExpiresIn(within)) }
	rows := map[string]func(w *world, link *wire){
		"in line": func(w *world, _ *wire) { expiring(w) },
		"planned": func(w *world, _ *wire) {
			task := worker.NewTask("mail", nil, headers("acme", 1), asynq.TaskID("000060"))
			if _, err := w.newClient().Enqueue(w.t.Context(), task, worker.ExpiresIn(within)); err != nil {
				w.t.Fatal(err)
			}
		},
		"in line, without a retry left": func(w *world, _ *wire) {
			task := worker.NewTask("mail", nil, headers("acme", 1), worker.ExpiresIn(within))
			w.send(task, asynq.TaskID("000060"), asynq.MaxRetry(0))
		},
		"put back while Redis is away": func(w *world, link *wire) {
			link.cut()
			expiring(w)
		},
		"put back, too heavy for a limit that was set": func(w *world, _ *wire) {
			w.set("tenant", "acme", throttle.PerSecond(2))
			w.enqueue(60, "acme", 5, worker.ExpiresIn(within))
		},
		"too heavy for a limit that was set, without a retry left": func(w *world, _ *wire) {
			w.set("tenant", "acme", throttle.PerSecond(2))
			task := worker.NewTask("mail", nil, headers("acme", 5), worker.ExpiresIn(within))
			w.send(task, asynq.TaskID("000060"), asynq.MaxRetry(0))
		},
		"pending in a paused queue": func(w *world, _ *wire) {
			if err := w.tasks.PauseQueue("default"); err != nil {
				w.t.Fatal(err)
			}
			time.AfterFunc(within, func() { _ = w.tasks.UnpauseQueue("default") })
			expiring(w)
		},
		"put back by a process that has stopped": func(w *world, _ *wire) {
			expiring(w)
			w.until("it stands in line", 2*time.Second, func() bool {
				return slices.Contains(w.inLine("acme"), worker.JobID("default", "000060", 0))
			})
			w.shaper.Stop()
		},
	}
	for name, wait := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observer := new(told)
			inBubble(t, perTenant(5, 20*time.Second), func(t *testing.T, w *world) {
				link := newWire(w)
				th, err := throttle.New("world", link.client, w.scopes, &throttle.Options{Logger: zap.NewNop(), Observer: observer})
				if err != nil {
					t.Fatal(err)
				}
				var ends endings
				opts := &worker.Options{Logger: zap.NewNop(), Expired: ends.expired(func() error { return nil })}
				s, err := worker.New(th, w.client, jobOf, opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Stop)
				w.shaper = s
				w.serveWith(s, asynq.Config{Concurrency: 4})
				for n := range 60 {
					w.enqueue(n, "acme", 1)
				}
				w.until("all others stand in line", 2*time.Second, func() bool { return s.Stats().PutBack >= 55 })
				began := time.Now()
				wait(w, link)
				w.until("it is ended", within+seenWithin, w.gone("000060"))
				late, is := ends.of("000060")
				t.Logf("ended %s after it was enqueued, %s after its deadline", time.Since(began), late)
				if !is || late < 0 || late > seenWithin || w.ran("000060") != 0 {
					t.Errorf("Expired was called: %t, %s after the deadline; it ran %d times", is, late, w.ran("000060"))
				}
				link.mend()
				if st := s.Stats(); st.Ended != 1 || st.Expired != 1 {
					t.Errorf("stats %+v, want one ended, which has expired", st)
				}
				observer.mu.Lock()
				defer observer.mu.Unlock()
				var reason *throttle.DeadlineError
				if e := observer.endings; len(e) != 1 || e[0].Throttle != "world" || !errors.As(e[0].Err, &reason) ||
					e[0].Job.ID != worker.JobID("default", "000060", 0) {
					t.Errorf("the observer was told of %+v", e)
				}
				if got := w.inLine("acme"); slices.Contains(got, worker.JobID("default", "000060", 0)) {
					t.Error("it still stands in line")
				}
			})
		})
	}
}

// TestExpiryInAnyOrder: each of many tasks with random deadlines starts by its deadline or is ended
// soon after it, and tasks that expire leave their room to the others.
func TestExpiryInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, maxWait := range []time.Duration{worker.DefaultMaxWait, 5 * time.Second} {
		t.Run(maxWait.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(2, time.Second), func(t *testing.T, w *world) {
				var ends endings
				w.serveWith(w.newShaper(&worker.Options{
					MaxWait: maxWait,
					Expired: ends.expired(func() error { return nil }),
				}), asynq.Config{Concurrency: 20})
				tasks := longtest.Of(60, 200) // 30 or 100 s
				random, deadlines := rand.New(rand.NewPCG(1, 2)), make(map[string]time.Time)
				lasting := 0
				for n := range tasks {
					if n%4 == 0 {
						w.enqueue(n, "acme", 1)
						lasting++
						continue
					}
					within := time.Duration(1+random.IntN(tasks*500)) * time.Millisecond
					deadlines[w.enqueue(n, "acme", 1, worker.ExpiresIn(within))] = time.Now().Add(within)
				}
				w.until("asynq is done with all", time.Duration(tasks)*500*time.Millisecond+seenWithin, func() bool {
					info, err := w.tasks.GetQueueInfo("default")
					if err != nil {
						t.Fatal(err)
					}
					return info.Size == 0
				})
				w.withinLimits()
				ran := 0
				for id, deadline := range deadlines {
					late, expired := ends.of(id)
					starts := w.ran(id)
					ran += starts
					switch {
					case (starts == 1) == expired:
						t.Errorf("task %s started %d times, and has expired: %t", id, starts, expired)
					case starts == 1 && w.began.Add(w.startOf(id)).After(deadline):
						t.Errorf("task %s started %s after its deadline", id, w.began.Add(w.startOf(id)).Sub(deadline))
					case late > seenWithin:
						t.Errorf("task %s was ended %s after its deadline", id, late)
					}
				}
				// 2 a second, but for windows in which a booked task expired at the last moment.
				optimal := time.Duration((ran+lasting)/2-1) * time.Second
				t.Logf("%d of %d with a deadline started; the last start was after %s, the optimum is %s", ran, len(deadlines),
					w.makespan(), optimal)
				if w.makespan() > optimal*11/10+2*time.Second {
					t.Errorf("the last start was after %s, want about %s: room was wasted", w.makespan(), optimal)
				}
			})
		})
	}
}

// TestExpiredIsUpToTheUser: an expired task is archived with the reason; dropped; done; or failed,
// retried, and handed to the function again. Where asynq gets an error, ErrorHandler gets the reason.
func TestExpiredIsUpToTheUser(t *testing.T) {
	t.Parallel()
	calls := 0
	rows := map[string]struct {
		expired           func(context.Context, *asynq.Task, *throttle.DeadlineError) error
		archived, reports int
		times             int64
	}{
		"archived": {nil, 1, 1, 1},
		"dropped":  {worker.Drop, 0, 1, 1},
		"done":     {func(context.Context, *asynq.Task, *throttle.DeadlineError) error { return nil }, 0, 0, 1},
		"failed once": {func(context.Context, *asynq.Task, *throttle.DeadlineError) error {
			if calls++; calls == 1 {
				return errBroken
			}
			return nil
		}, 0, 1, 2},
		"failed always": {func(context.Context, *asynq.Task, *throttle.DeadlineError) error { return errBroken }, 1, 3, 3},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, perTenant(1, 20*time.Second), func(t *testing.T, w *world) {
				s := w.newShaper(&worker.Options{Logger: zap.NewNop(), Expired: row.expired})
				var user asked
				w.serveWith(s, asynq.Config{ErrorHandler: user.config().ErrorHandler, RetryDelayFunc: asSoonAsPossible})
				for n := range 5 {
					w.enqueue(n, "acme", 1)
				}
				w.until("they stand in line", 2*time.Second, func() bool { return s.Stats().PutBack >= 4 })
				id := w.enqueue(5, "acme", 1, worker.ExpiresIn(5*time.Second), asynq.MaxRetry(2))
				w.until("it is ended", 20*time.Second, func() bool { return s.Stats().Expired == row.times })
				w.until("asynq is done with it", time.Second, func() bool {
					info := w.task(id)
					return info == nil || info.State == asynq.TaskStateArchived
				})
				w.archived(row.archived)
				if _, _, errs := user.errors(); len(errs) != row.reports {
					t.Errorf("ErrorHandler was called with %q, want %d errors", errs, row.reports)
				}
				if info := w.task(id); name == "archived" && !strings.Contains(info.LastErr, "after the deadline") {
					t.Errorf("the last error is %q, want the reason", info.LastErr)
				}
				if st := s.Stats(); st.Ended != row.times || w.ran(id) != 0 {
					t.Errorf("stats %+v, it ran %d times", st, w.ran(id))
				}
			})
		})
	}
}

// TestExpiryLeavesWhatRunsAlone: a handler runs on after its job's deadline.
func TestExpiryLeavesWhatRunsAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(1, time.Second), func(t *testing.T, w *world) {
		w.handle = 5 * time.Second
		w.serve(asynq.Config{})
		id := w.enqueue(0, "acme", 1, worker.ExpiresIn(time.Second))
		w.drained(1, time.Minute)
		w.until("asynq is done with it", time.Second, w.gone(id))
		if st := w.shaper.Stats(); st.Ended != 0 || w.ran(id) != 1 {
			t.Errorf("stats %+v, it ran %d times", st, w.ran(id))
		}
	})
}

// TestExpiryAtPlanning: a Client refuses a task that cannot start in time, and counts ExpiresIn from
// its call or from the time that the user gave.
func TestExpiryAtPlanning(t *testing.T) {
	t.Parallel()
	inFarAhead(t, perTenant(1, 10*time.Minute), func(t *testing.T, w *world) {
		c, enqueued := w.newClient(), 0
		enqueue := func(made, given []asynq.Option) (*asynq.TaskInfo, error) {
			enqueued++
			task := worker.NewTask("mail", nil, headers("acme", 1), append(made, asynq.TaskID(fmt.Sprint(enqueued)))...)
			time.Sleep(time.Second)
			p, err := c.Enqueue(t.Context(), task, given...)
			return p.Info, err
		}
		if _, err := enqueue(nil, nil); err != nil { // takes the first slot
			t.Fatal(err)
		}
		opt := func(opts ...asynq.Option) []asynq.Option { return opts }
		for name, row := range map[string]struct {
			made, given []asynq.Option
			late        bool
			expires     time.Duration // after the call
		}{
			"too late":          {opt(), opt(worker.ExpiresIn(5 * time.Second)), true, 0},
			"too late, made so": {opt(worker.ExpiresIn(5 * time.Second)), opt(), true, 0},
			"passed":            {opt(), opt(worker.ExpiresIn(-time.Millisecond)), true, 0},
			"given last":        {opt(worker.ExpiresIn(time.Second)), opt(worker.ExpiresIn(time.Hour)), false, time.Hour},
			"made so":           {opt(worker.ExpiresIn(time.Hour)), opt(), false, time.Hour},
			"for later": {opt(), opt(worker.ExpiresIn(time.Second), asynq.ProcessIn(time.Hour)), false,
				time.Hour + time.Second},
			"for later, made so": {opt(worker.ExpiresIn(time.Second)), opt(asynq.ProcessAt(time.Now().Add(time.Hour))),
				false, 0},
			"for a time in the past": {opt(), opt(worker.ExpiresIn(time.Hour), asynq.ProcessIn(-time.Hour)), false, time.Hour},
		} {
			info, err := enqueue(row.made, row.given)
			var late *throttle.DeadlineError
			if errors.As(err, &late) != row.late || (err != nil) != row.late {
				t.Errorf("%s: got the error %v", name, err)
			}
			if row.late || row.expires == 0 {
				continue
			}
			want := fmt.Sprint(time.Now().Add(row.expires).UnixMilli())
			if got := info.Headers["Throttle-Expires"]; got != want {
				t.Errorf("%s: expires at %s, want %s", name, got, want)
			}
		}
	})
}

// TestExpiryIsNotTakenFromCopies: a task made with the headers of a task that expires, such as its successor, does not
// expire unless it has an ExpiresIn itself.
func TestExpiryIsNotTakenFromCopies(t *testing.T) {
	t.Parallel()
	expires := worker.NewTask("t", nil, headers("acme", 1), worker.ExpiresIn(time.Minute)).Headers()
	copied := worker.NewTask("t", nil, expires).Headers()
	if at := worker.DeadlineOf(&asynq.TaskInfo{Headers: copied}); !at.IsZero() || copied["tenant"] != "acme" {
		t.Errorf("it expires at %s, want never; its headers are %v", at, copied)
	}
	own := worker.NewTask("t", nil, expires, worker.ExpiresIn(time.Hour)).Headers()
	if left := time.Until(worker.DeadlineOf(&asynq.TaskInfo{Headers: own})); left < 59*time.Minute {
		t.Errorf("with an ExpiresIn it expires in %s, want an hour", left)
	}
}

// TestDeadlineOf: a task that asynq's Inspector returned has the earlier of its deadline and its expiry.
func TestDeadlineOf(t *testing.T) {
	t.Parallel()
	hour := time.Now().Add(time.Hour)
	expires := worker.NewTask("t", nil, nil, worker.ExpiresIn(time.Minute)).Headers()
	for name, c := range map[string]struct {
		info          asynq.TaskInfo
		after, before time.Time
	}{
		"neither":  {},
		"deadline": {asynq.TaskInfo{Deadline: hour}, hour, hour},
		"expiry":   {asynq.TaskInfo{Headers: expires}, hour.Add(-time.Hour), hour.Add(-58 * time.Minute)},
		"both":     {asynq.TaskInfo{Deadline: hour, Headers: expires}, hour.Add(-time.Hour), hour.Add(-58 * time.Minute)},
	} {
		if got := worker.DeadlineOf(&c.info); got.Before(c.after) || got.After(c.before) {
			t.Errorf("%s: %s, want %s to %s", name, got, c.after, c.before)
		}
	}
}
