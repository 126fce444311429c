package worker_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// mixed is a drain of tasks of all kinds in three queues.
type mixed struct {
	w     *world
	kinds map[string]kind // by task ID; of a member of a group by that of its payload

	mu     sync.Mutex
	starts []throttletest.Start
	runs   map[string]int
	unsure map[string]bool // in a process that was killed before it began them
}

// kind is how a task is made and what its handler does.
type kind struct {
	plain    bool // made by asynq alone
	maxRetry int
	fails    string // its first attempt: "error", "panic", "timeout"; "" does not
}

var mixedQueues = map[string]int{"high": 3, "default": 2, "low": 1}

// mixedProcess is a process of the drain, with clients of its own.
type mixedProcess struct {
	wire   *wire
	shaper *worker.Shaper
	server *asynq.Server
	dead   atomic.Bool
	ends   chan struct{}
	has    map[string]bool // that its middleware has; under the drain's lock
	inside atomic.Int64    // tasks of NewTask with MaxRetry 0 that the middleware has, and their handlers have not
}

func (m *mixed) start() *mixedProcess {
	w := m.w
	p := &mixedProcess{wire: newWire(w), ends: make(chan struct{}), has: make(map[string]bool)}
	p.wire.before(func(cmd redis.Cmder) {
		if cmd.Name() == "evalsha" { // all that asynq and the throttle write: so that there is a time in between
			time.Sleep(time.Millisecond)
		}
	})
	th, err := throttle.New("world", p.wire.client, w.scopes, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if p.shaper, err = worker.New(th, p.wire.client, jobOf, nil); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.shaper.Stop)
	cfg := p.shaper.Configure(asynq.Config{
		Concurrency: 40, Queues: mixedQueues, RetryDelayFunc: asSoonAsPossible, ShutdownTimeout: time.Second,
		GroupGracePeriod: 2 * time.Second, GroupMaxSize: 5, GroupAggregator: asynq.GroupAggregatorFunc(m.aggregate),
	})
	shaped := p.shaper.Wrap(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		p.entered(m, task, -1)
		defer p.entered(m, task, 1)
		return m.process(ctx, task, p)
	}))
	p.server = w.start(p.wire.client, cfg, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		p.entered(m, task, 1)
		defer p.entered(m, task, -1)
		p.holds(m, task, true)
		defer p.holds(m, task, false)
		return shaped.ProcessTask(ctx, task)
	}))
	return p
}

func (p *mixedProcess) entered(m *mixed, task *asynq.Task, by int64) {
	if k, known := m.kinds[string(task.Payload())]; known && !k.plain && k.maxRetry == 0 {
		p.inside.Add(by)
	}
}

func (p *mixedProcess) holds(m *mixed, task *asynq.Task, does bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range strings.Fields(string(task.Payload())) {
		p.has[id] = does
	}
}

// restart ends a process as a rollout does.
func (p *mixedProcess) restart(m *mixed) *mixedProcess {
	p.shaper.Stop()
	p.server.Shutdown()
	return m.start()
}

// kill ends a process as SIGKILL does: none of its commands reaches Redis any more, and no
// handler begins.
func (p *mixedProcess) kill(m *mixed) {
	p.dead.Store(true)
	p.wire.cut()
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, does := range p.has {
		if does && m.runs[id] == 0 {
			m.unsure[id] = true
		}
	}
}

// aggregate makes one task of the tasks of a group. Its payload names them.
func (m *mixed) aggregate(_ string, tasks []*asynq.Task) *asynq.Task {
	var members []string
	for _, task := range tasks {
		members = append(members, string(task.Payload()))
	}
	return worker.NewTask("mail", []byte(strings.Join(members, " ")), tasks[0].Headers(), asynq.MaxRetry(0))
}

func (m *mixed) process(ctx context.Context, task *asynq.Task, p *mixedProcess) error {
	grant, _ := worker.Grant(ctx)
	ids := strings.Fields(string(task.Payload()))
	m.mu.Lock()
	if p.dead.Load() {
		m.mu.Unlock()
		<-p.ends
		return nil
	}
	m.starts = append(m.starts, throttletest.Start{At: grant.Start, Weight: grant.Job.Weight, Keys: grant.Job.Keys})
	for _, id := range ids {
		m.runs[id]++
	}
	first := m.runs[ids[0]] == 1
	m.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	if !first || len(ids) > 1 {
		return nil
	}
	switch m.kinds[ids[0]].fails {
	case "error":
		return errBroken
	case "panic":
		panic("handler's mistake")
	case "timeout":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// enqueue enqueues the n-th task. The order mixes all kinds.
func (m *mixed) enqueue(n int) {
	id := fmt.Sprintf("%06d", n)
	k := kind{plain: n%4 == 3, maxRetry: []int{0, 0, 1, 25}[n/4%4],
		fails: []string{"", "", "", "", "error", "panic", "timeout"}[n%7]}
	queue := []string{"high", "default", "low"}[n%3]
	opts := []asynq.Option{asynq.MaxRetry(k.maxRetry), asynq.Queue(queue)}
	switch n / 16 % 5 {
	case 1:
		opts = append(opts, asynq.Unique(time.Hour))
	case 2:
		opts = append(opts, asynq.Retention(24*time.Hour))
	case 3:
		opts, k.fails = append(opts, asynq.Group(fmt.Sprint("g", n%3))), ""
	}
	if k.fails == "timeout" {
		timeout := 2 * time.Second
		if k.plain {
			timeout = time.Minute // it may wait in its handler
		}
		opts = append(opts, asynq.Timeout(timeout))
	}
	m.kinds[id] = k
	opts = append(opts, asynq.TaskID(id))
	if k.plain {
		m.w.send(asynq.NewTaskWithHeaders("mail", []byte(id), headers(fmt.Sprintf("t%d", n%8), 1), opts...))
		return
	}
	m.w.send(worker.NewTask("mail", []byte(id), headers(fmt.Sprintf("t%d", n%8), 1), opts...))
}

// begun returns how many tasks have run or begun to run.
func (m *mixed) begun() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.runs)
}

// open returns how many tasks asynq still has to run.
func (m *mixed) open() (n int) {
	for queue := range mixedQueues {
		info, err := m.w.tasks.GetQueueInfo(queue)
		if err != nil {
			m.w.t.Fatal(err)
		}
		n += info.Pending + info.Active + info.Retry + info.Scheduled + info.Aggregating
	}
	return n
}

// unrun returns the tasks that have not run, except for tasks of asynq.NewTask that a process
// had when it was killed.
func (m *mixed) unrun() (ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, k := range m.kinds {
		if m.runs[id] == 0 && !(k.plain && m.unsure[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestNoTaskIsArchivedUnrun drains tasks of all kinds while processes are restarted twice
// and one is killed: made by NewTask and by asynq, with 0, 1 and 25 retries, Unique,
// with Retention, in groups, of three queues, with errors, panics and timeouts. Each task runs:
// an archived task has run. With LONG=1 there are 2,000.
//
// One kind may be archived without having run: a task of asynq.NewTask on its last retry
// that waited in the process that was killed.
func TestNoTaskIsArchivedUnrun(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	tasks := 300
	if os.Getenv("LONG") == "1" {
		tasks = 2000
	}
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(20)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerSecond(5)}},
	}
	inBubble(t, scopes, func(t *testing.T, w *world) {
		m := &mixed{w: w, kinds: make(map[string]kind), runs: make(map[string]int), unsure: make(map[string]bool)}
		for n := range tasks {
			m.enqueue(n)
		}
		processes := []*mixedProcess{m.start(), m.start(), m.start()}
		amid := func(part float64) {
			t.Helper()
			w.until(fmt.Sprintf("%.0f%% of the tasks have run", 100*part), 10*time.Minute,
				func() bool { return float64(m.begun()) > part*float64(tasks) })
		}
		amid(0.2)
		processes[0] = processes[0].restart(m)
		amid(0.3)
		var victim int
		w.until("a process has tasks in hand", time.Minute, func() bool {
			victim = slices.IndexFunc(processes, func(p *mixedProcess) bool { return p.inside.Load() >= 2 })
			return victim >= 0
		})
		killed := processes[victim]
		killed.kill(m)
		processes[victim] = m.start()
		amid(0.6)
		processes[2] = processes[2].restart(m)
		// asynq brings back what was lost after a minute or two, and archives what has no
		// retry left.
		for range 15 * 60 {
			if len(m.unrun()) == 0 && m.open() == 0 {
				break
			}
			time.Sleep(time.Second)
		}
		for _, id := range m.unrun() {
			t.Errorf("task %s has not run: %+v, %+v", id, m.kinds[id], m.info(id))
		}
		if open := m.open(); open != 0 {
			t.Errorf("asynq is not done with %d tasks", open)
		}
		close(killed.ends)
		killed.wire.mend()

		m.mu.Lock()
		defer m.mu.Unlock()
		for _, over := range throttletest.Check(w.scopes, m.starts) {
			t.Errorf("window over its limit: %s", over)
		}
		again := 0
		for id, k := range m.kinds {
			n := m.runs[id]
			attempts := 1
			if k.fails != "" && k.maxRetry > 0 {
				attempts = 2
			}
			if again += max(0, n-attempts); n > attempts+1 {
				t.Errorf("task %s ran %d times: %+v", id, n, k)
			}
		}
		archived := 0
		for queue := range mixedQueues {
			info, err := w.tasks.GetQueueInfo(queue)
			if err != nil {
				t.Fatal(err)
			}
			archived += info.Archived
		}
		t.Logf("%d tasks, %d archived, %d ran once more since their process was killed, %d waited in it", tasks,
			archived, again, len(m.unsure))
	})
}

// info is what asynq keeps of a task.
func (m *mixed) info(id string) *asynq.TaskInfo {
	for queue := range mixedQueues {
		if info, err := m.w.tasks.GetTaskInfo(queue, id); err == nil {
			return info
		}
	}
	return nil
}
