package reliability_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// The environment variables of make soak: how long a soak lasts, and the document into which it writes its figures.
const (
	lengthVariable   = "SOAK"
	documentVariable = "SOAK_DOCUMENT"
)

// flat is the share by which memory may grow from the second third to the last third of a soak of half an hour or more.
const flat = 0.05

// soak is a mixed drain that lasts: tasks of three throttles keep coming, an operator changes what is set, and faults
// strike, one after the other.
type soak struct {
	t              *testing.T
	length         time.Duration
	settings       soakSettings
	loads          []workload
	notes          *notebook
	server, queue  *redistest.Server // the servers of the throttles and of asynq
	proxy          *redistest.Proxy  // stands in front of the throttles' server
	direct, behind *redis.Client     // clients of the two servers, past the proxy
	clock          *steppedClock
	random         *rand.Rand
	workers        []*soakWorker
	child          *child
	inspectors     map[string]*inspect.Inspector // by throttle
	changes        []change
	struck         []time.Time          // when connections of asynq were cut, or a process killed
	killed         map[string]time.Time // by process
	done           map[string]int       // how often each fault and change came
	samples        []sample
}

// sample is the memory of one moment, in bytes.
type sample struct{ heap, throttles, queue uint64 }

// TestSoak runs a mixed load for a long time amid faults and changes, and compares the handlers' own record with the
// promises: no limit is exceeded, no task is lost, nothing is left behind, and memory does not grow. By default the
// soak lasts some seconds. That is too short to kill a process: asynq takes a minute to find the tasks of a process
// that died.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := newSoak(t)
	before := goleak.IgnoreCurrent()
	s.start()
	s.run()
	s.drain()
	s.stop()
	left := 0
	if s.alone() {
		// The network before Redis is the test's own, and ends with it.
		const redistest = "github.com/asynq-throttle/asynq-throttle/internal/redistest."
		if err := goleak.Find(before, goleak.IgnoreAnyFunction(redistest+"(*Proxy).serve"),
			goleak.IgnoreAnyFunction(redistest+"(*link).passRequests"),
			goleak.IgnoreAnyFunction(redistest+"(*link).passReplies")); err != nil {
			t.Error(err)
			left = strings.Count(err.Error(), "Goroutine ")
		}
	}
	s.report(left)
}

// TestSoakIsChecked: the checks of a soak find each error that the test puts into its records.
func TestSoakIsChecked(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := clocked("w") // 5 of all and 3 of each tenant in a second
	record := func(starts int) (a accounts) {
		a.enqueued = map[string]bool{}
		for n := range starts {
			at := noon.Add(time.Duration(n) * time.Millisecond)
			of := note{Throttle: "w", Task: strconv.Itoa(n), Job: w.job(0), At: at, Noted: at}
			a.calls = append(a.calls, call{note: of, ended: at})
			a.enqueued["w"+of.Task] = true
		}
		return a
	}
	before, after := noon.Add(-time.Second), noon.Add(time.Minute)
	limit := func(units int64) change { return change{limits: []throttle.Limit{throttle.Per(units, time.Second)}} }
	during := func(c change) []change {
		c.throttle, c.scope, c.key = "w", "tenant", "t0"
		c.from, c.to = [2]time.Time{before, before}, [2]time.Time{after, after}
		return []change{c}
	}
	for name, test := range map[string]struct {
		starts  int
		changes []change
		over    int
	}{
		"full":          {starts: 3},
		"over":          {starts: 4, over: 1},
		"over in all":   {starts: 6, over: 3 + 1},
		"lowered":       {starts: 2, changes: during(limit(1)), over: 1},
		"raised":        {starts: 5, changes: during(limit(5))},
		"over a raise":  {starts: 5, changes: during(limit(4)), over: 1},
		"shadow":        {starts: 5, changes: during(change{mode: throttle.Shadow})},
		"off":           {starts: 5, changes: during(change{mode: throttle.Off})},
		"while a pause": {starts: 2, changes: during(change{paused: true}), over: 2},
	} {
		if _, over := record(test.starts).checkLimits(w, test.changes, nil); len(over) != test.over {
			t.Errorf("%s: found %q, want %d", name, over, test.over)
		}
	}
	a := record(3)
	a.calls = append(a.calls, a.calls[1])           // ran twice
	a.calls[2].ended, a.enqueued["w9"] = noon, true // was lost
	if ran, twice, lost, wrong := a.checkTasks(nil); ran != 3 || twice != 0 || len(lost) != 1 || len(wrong) != 1 {
		t.Errorf("%d ran, %d twice, lost %q, wrong %q", ran, twice, lost, wrong)
	}
	a.calls[1].ended = time.Time{} // its process was killed
	a.expired = map[string]bool{"w9": true}
	if ran, twice, lost, wrong := a.checkTasks(nil); ran != 3 || twice != 1 || len(lost)+len(wrong) != 0 {
		t.Errorf("%d ran, %d twice, lost %q, wrong %q", ran, twice, lost, wrong)
	}
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	length := longtest.Of(6*time.Second, 12*time.Second)
	if text := os.Getenv(lengthVariable); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		must(t, err)
	}
	folder := t.TempDir()
	s := &soak{t: t, length: length, server: redistest.Start(t), queue: redistest.Start(t), clock: &steppedClock{},
		random: rand.New(rand.NewPCG(1, 1)), killed: map[string]time.Time{}, done: map[string]int{},
		inspectors: map[string]*inspect.Inspector{}}
	s.proxy = redistest.NewProxy(t, s.server.Addr)
	s.direct, s.behind = clientOf(t, soakOptions(s.server.Addr)), clientOf(t, soakOptions(s.queue.Addr))
	s.settings = soakSettings{Name: redistest.Name(t), Decide: s.proxy.Addr, Work: s.queue.Addr, Begins: time.Now(),
		Length: length, Notes: filepath.Join(folder, "child")}
	s.loads = append(s.settings.workloads(), clocked(s.settings.Name+"-clocked"))
	var err error
	s.notes, err = openNotebook(filepath.Join(folder, "parent"), "parent")
	must(t, err)
	t.Cleanup(func() { _ = s.notes.file.Close() })
	for _, w := range s.loads {
		th, err := throttle.New(w.name, s.direct, w.scopes, &throttle.Options{Timeout: time.Minute, Logger: zap.NewNop()})
		must(t, err)
		s.inspectors[w.name] = inspect.New(th)
	}
	return s
}

// alone reports whether this is the only test that runs. It is if the length of the soak was given.
func (s *soak) alone() bool { return os.Getenv(lengthVariable) != "" }

// kills reports whether the soak is long enough for processes that die.
func (s *soak) kills() bool { return s.length > 2*forgotten }

// start starts two workers for each workload in this process, and one process that will be killed.
func (s *soak) start() {
	for range 2 {
		for _, w := range s.loads {
			clock := s.clock
			if !strings.HasSuffix(w.name, "-clocked") {
				clock = nil
			}
			p, err := startSoakWorker(w, s.proxy.Addr, s.queue.Addr, clock, s.notes)
			must(s.t, err)
			s.workers = append(s.workers, p)
			s.t.Cleanup(sync.OnceFunc(p.stop))
		}
	}
	if s.kills() {
		s.startChild()
	}
}

func (s *soak) startChild() {
	s.settings.Process = fmt.Sprint("child", len(s.killed))
	s.child = startSelf(s.t, soakVariable, s.settings)
}

// run lets the soak go on for its length: tasks come, samples are taken, and one event follows the other.
func (s *soak) run() {
	ctx, cancel := context.WithTimeout(s.t.Context(), s.length)
	defer cancel()
	var beside sync.WaitGroup
	for _, w := range s.loads {
		beside.Go(func() { s.enqueue(ctx, w) })
	}
	beside.Go(func() {
		for s.wait(ctx, s.length/120) {
			s.samples = append(s.samples, s.sample())
		}
	})
	events := s.events()
	pause := min(10*time.Second, s.length/time.Duration(2*len(events)))
	for n := 0; s.wait(ctx, pause); n++ {
		events[n%len(events)]()
	}
	beside.Wait()
}

// wait waits, and reports whether the soak goes on.
func (s *soak) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lasting returns how long a fault or a change lasts: d, or less in a short soak.
func (s *soak) lasting(d time.Duration) time.Duration { return min(d, s.length/20) }

// enqueue enqueues the tasks of a workload, in bursts.
func (s *soak) enqueue(ctx context.Context, w workload) {
	client := asynq.NewClientFromRedisClient(s.behind)
	decide := redis.NewClient(soakOptions(s.proxy.Addr))
	defer decide.Close()
	if strings.HasSuffix(w.name, "-clocked") {
		decide.AddHook(s.clock)
	}
	w.options.Logger = zap.NewNop()
	th, err := throttle.New(w.name, decide, w.scopes, &w.options)
	if err != nil {
		s.t.Error(err)
		return
	}
	planner, err := worker.NewClient(th, s.behind, jobInHeader, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	n := 0
	for second := 0; s.wait(ctx, time.Second); second++ {
		for range burst(w, second) {
			if err := s.enqueueOne(client, planner, w, n, second); err != nil {
				s.t.Errorf("task %d of %s: %v", n, w.name, err)
				return
			}
			n++
			if w.options.Advance > 0 {
				s.wait(ctx, time.Second/(burstOfQuick+10))
			}
		}
	}
}

// burst returns how many tasks of a workload come in a second.
func burst(w workload, second int) int {
	switch {
	case w.options.Advance > 0:
		return [...]int{burstOfQuick, 0, 0, 0, 0, 0}[second%6]
	case len(w.scopes) == 2:
		return 2
	case second%30 < 10:
		return 14
	default:
		return 4
	}
}

// enqueueOne enqueues a task. In every other second a client that plans enqueues it; such a task may be refused.
func (s *soak) enqueueOne(client *asynq.Client, planner *worker.Client, w workload, n, second int) error {
	text, err := headerOf(w.job(n))
	if err != nil {
		return err
	}
	options := []asynq.Option{asynq.TaskID(fmt.Sprintf("%08d", n)), asynq.Queue(w.name)}
	if w.expires != nil && w.expires(n) > 0 {
		options = append(options, worker.ExpiresIn(w.expires(n)))
	}
	task := worker.NewTask(taskType, nil, map[string]string{"job": text}, options...)
	did := note{Did: "enqueued", Throttle: w.name, Task: fmt.Sprintf("%08d", n)}
	if second%2 == 0 && w.options.Advance == 0 {
		_, err = planner.Enqueue(context.Background(), task)
	} else {
		_, err = client.Enqueue(task)
	}
	var full *throttle.LineFullError
	var late *throttle.DeadlineError
	switch {
	case errors.As(err, &full), errors.As(err, &late):
		did.Did = "refused"
	case errors.Is(err, asynq.ErrTaskIDConflict): // the reply was lost, and the client sent the task again
	case err != nil:
		s.t.Logf("enqueue task %d of %s: %v", n, w.name, err)
		did.Did = "unsure"
	}
	return s.notes.add(did)
}

// sample measures memory. The heap of this process is measured after a garbage collection.
func (s *soak) sample() sample {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return sample{memory.HeapAlloc, s.used(s.direct), s.used(s.behind)}
}

// used returns the memory that a server uses. If the server does not say it, used fails the test and returns 0.
func (s *soak) used(client *redis.Client) uint64 {
	info, err := client.Info(context.Background(), "memory").Result()
	_, rest, found := strings.Cut(info, "used_memory:")
	text, _, _ := strings.Cut(rest, "\r\n")
	used, wrong := strconv.ParseUint(text, 10, 64)
	if err != nil || !found || wrong != nil {
		s.t.Errorf("INFO memory: %v", errors.Join(err, wrong))
	}
	return used
}

// drain waits until asynq has no task any more.
func (s *soak) drain() {
	tasks := asynq.NewInspectorFromRedisClient(s.behind)
	s.until("asynq is done with all tasks", s.waiting, func() bool {
		for _, w := range s.loads {
			info, err := tasks.GetQueueInfo(w.name)
			if err != nil || info.Size != info.Archived {
				return false
			}
		}
		return true
	})
	s.until("no job is booked", s.waiting, func() bool {
		for _, w := range s.loads {
			usage, err := s.inspectors[w.name].Usage(s.t.Context(), throttle.Global, "")
			must(s.t, err)
			if usage.Limits[0].Booked != 0 {
				return false
			}
		}
		return true
	})
	for _, w := range s.loads {
		info, err := tasks.GetQueueInfo(w.name)
		must(s.t, err)
		if info.Archived != 0 {
			s.t.Errorf("asynq archived %d tasks of %s", info.Archived, w.name)
		}
	}
}

// leftInLine returns how many jobs are still in line, though asynq has no task any more. A task that expires while
// Redis cannot be asked leaves its job there. The pull that reaches the job finds the task gone: under a quota the next
// day.
func (s *soak) leftInLine() (left int) {
	for _, w := range s.loads {
		lanes, err := s.inspectors[w.name].Lanes(s.t.Context())
		must(s.t, err)
		for _, lane := range lanes {
			jobs, _, err := s.inspectors[w.name].Jobs(s.t.Context(), lane.Name, "")
			must(s.t, err)
			left += len(jobs)
		}
	}
	return left
}

// until polls for five minutes at most, longer than any task waits at the end of a soak. It counts polls and reads no
// clock.
func (s *soak) until(what string, state func() string, is func() bool) {
	s.t.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for range 3000 {
		if is() {
			return
		}
		<-poll.C
	}
	s.t.Fatalf("not in time: %s; %s", what, state())
}

// waiting describes some of the tasks that asynq still has.
func (s *soak) waiting() (text string) {
	tasks := asynq.NewInspectorFromRedisClient(s.behind)
	for _, w := range s.loads {
		for state, list := range map[string]func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
			"active": tasks.ListActiveTasks, "pending": tasks.ListPendingTasks, "retry": tasks.ListRetryTasks,
			"scheduled": tasks.ListScheduledTasks, "archived": tasks.ListArchivedTasks,
		} {
			infos, err := list(w.name, asynq.PageSize(3))
			text += fmt.Sprintf("%s %s (%v):", w.name, state, err)
			for _, info := range infos {
				text += fmt.Sprintf(" [%s %s, next at %s, %q]", info.ID, info.Headers["job"], info.NextProcessAt, info.LastErr)
			}
			text += "\n"
		}
	}
	return text
}

// stop ends the workers as their programs would.
func (s *soak) stop() {
	if s.child != nil {
		s.child.kill()
	}
	for _, p := range s.workers {
		p.stop()
	}
}

// report checks the record and writes the figures.
func (s *soak) report(left int) {
	a := readAccounts(s.t, filepath.Dir(s.settings.Notes))
	ran, twice, lost, wrong := a.checkTasks(s.struck)
	checked, over := 0, 0
	for _, w := range s.loads {
		looked, found := a.checkLimits(w, s.changes, s.killed)
		checked, over, wrong = checked+looked, over+len(found), append(wrong, found...)
	}
	for i, what := range append(wrong, lost...) {
		if i < 20 { // more would hide the first
			s.t.Error(what)
		}
	}
	count := strconv.Itoa
	figures := []reliability.Figure{
		{What: "length, and until the last task had ended", Value: fmt.Sprintf("%s, %s", s.length,
			time.Since(s.settings.Begins).Round(time.Second))},
		{What: "tasks that asynq took", Value: count(len(a.enqueued))},
		{What: "of these: ran; expired at their deadlines; neither", Value: fmt.Sprintf("%d; %d; %d", ran,
			len(a.enqueued)-ran-len(lost), len(lost))},
		{What: "tasks that were refused, by a full line or a deadline, and asynq never got", Value: count(len(a.refused))},
		{What: "tasks whose enqueuing failed, so that asynq may have them or not", Value: count(len(a.unsure))},
		{What: "ran once more: their process was killed, or their connection cut at their end", Value: count(twice)},
		{What: "starts", Value: count(len(a.calls))},
		{What: "of these: out of an advance", Value: count(a.advanced)},
		{What: "charges corrected", Value: counts(a.settled)},
		{What: "windows, periods, hours and running jobs looked at", Value: count(checked)},
		{What: "**over their limit**", Value: count(over)},
		{What: "faults and changes", Value: counts(s.done)},
		{What: "keys without an expiry, but for asynq's own", Value: count(s.forever())},
		{What: "jobs left in line, whose tasks expired while Redis was cut off", Value: count(s.leftInLine())},
		{What: "goroutines left", Value: count(left)},
	}
	figures = append(figures, s.memory()...)
	for _, f := range figures {
		s.t.Logf("%s: %s", f.What, f.Value)
	}
	if path := os.Getenv(documentVariable); path != "" && !s.t.Failed() {
		must(s.t, reliability.WriteSoak(path, figures))
	}
}

// counts writes "3 × this, 2 × that".
func counts(of map[string]int) string {
	var texts []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		texts = append(texts, fmt.Sprintf("%d × %s", of[what], what))
	}
	return strings.Join(texts, ", ")
}

// forever returns how many keys have no expiry, without asynq's own keys.
func (s *soak) forever() (n int) {
	for _, client := range []*redis.Client{s.direct, s.behind} {
		for key := range keysOf(s.t, client, "*") {
			ttl, err := client.PTTL(s.t.Context(), key).Result()
			must(s.t, err)
			if ttl == -1 && !strings.HasPrefix(key, "asynq") {
				s.t.Errorf("%s has no expiry", key)
				n++
			}
		}
	}
	return n
}

// memory returns how memory changed from the second third of the samples to the last. During the first third everything
// warms up.
func (s *soak) memory() []reliability.Figure {
	if len(s.samples) < 20 {
		return nil
	}
	part := len(s.samples) / 3
	first, last := s.samples[part:2*part], s.samples[2*part:]
	var figures []reliability.Figure
	for _, of := range []struct {
		what string
		in   func(sample) uint64
	}{
		{"heap of a process with two workers of each throttle, after a collection", func(m sample) uint64 { return m.heap }},
		{"`used_memory` of the throttles' Redis", func(m sample) uint64 { return m.throttles }},
		{"`used_memory` of asynq's Redis", func(m sample) uint64 { return m.queue }},
	} {
		before, after := mean(first, of.in), mean(last, of.in)
		growth := after/before - 1
		figures = append(figures, reliability.Figure{What: of.what + ": mean of the second and of the last third",
			Value: fmt.Sprintf("%.2f MB, %.2f MB (%+.1f %%)", before/1e6, after/1e6, 100*growth)})
		if growth > flat && s.length >= 30*time.Minute {
			s.t.Errorf("%s grew by %.1f %%", of.what, 100*growth)
		}
	}
	return figures
}

func mean(samples []sample, of func(sample) uint64) (mean float64) {
	for _, m := range samples {
		mean += float64(of(m)) / float64(len(samples))
	}
	return mean
}
