package reliability_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestWakeUpsOfAKilledProcess_F32 kills one of two processes with SIGKILL. Each works on a
// queue of its own, with the tasks of one tenant. But both pull the jobs of both tenants, so
// the dead process held wake-ups of the other tenant's tasks too. A pull of the living process
// finds these tasks when their grace is over, so that all start. In full runs none of them starts
// more than two seconds after its grace, and no pause between starts takes two seconds.
func TestWakeUpsOfAKilledProcess_F32(t *testing.T) {
	t.Parallel()
	const perWindow, jobs, latest = 40, 160, 2 * time.Second
	scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(perWindow, window)}},
		{Name: "tenant"}}
	server := redistest.Start(t)
	client, name := server.Client(t), redistest.Name(t)
	stalls := newStalls(t, nil)
	starts := newRecord()
	survivor, err := newProcess(name, scopes, server.Client(t), server.Client(t), nil)
	must(t, err)
	survivor.config.Queues = map[string]int{"stays": 1}
	must(t, survivor.run(starts, starts.add))
	t.Cleanup(survivor.stop)
	victim := startChild(t, childSettings{Name: name, Decide: server.Addr, Work: server.Addr, Scopes: scopes,
		Queue: "goes"})

	queue := asynq.NewClientFromRedisClient(client)
	enqueue := func(n int, tenant string) {
		_, err := queue.Enqueue(worker.NewTask(taskType, nil, map[string]string{"tenant": tenant}),
			asynq.Queue(tenant), asynq.TaskID(fmt.Sprint(n)))
		must(t, err)
	}
	ran := func() int64 { return client.LLen(t.Context(), victim.startsKey()).Val() }
	tick := time.NewTicker(window / perWindow)
	defer tick.Stop()
	enqueue(2*jobs, "goes")
	for polls := 0; ran() == 0 && polls < 2000; polls++ { // a process takes a while to begin
		<-tick.C
	}
	// The jobs of the first window come one by one, so that jobs start evenly.
	for n := range 2 * jobs {
		if n < perWindow {
			<-tick.C
		}
		enqueue(n, []string{"stays", "goes"}[n%2])
	}
	slots := make(map[string]time.Time) // by task: its first slot
	var killed time.Time
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for polls := 0; starts.begun() < jobs; polls++ {
		if polls == 60_000 {
			t.Fatalf("%d of %d jobs have started", starts.begun(), jobs)
		}
		promised(t, client, name, slots)
		if killed.IsZero() && starts.begun() > perWindow && ran() > perWindow {
			victim.kill()
			killed = time.Now()
		}
		<-poll.C
	}
	all := starts.all()
	if left := jobs - starts.begunBefore(killed); killed.IsZero() || left < jobs/4 {
		timely(t, "killed with %d jobs left: this test has tested nothing", left)
	}
	seen, overdue, most, pause := 0, 0, time.Duration(0), time.Duration(0)
	for i, s := range all {
		allowed := latest + stalls.of(killed, killed.Add(grace+2*latest))
		if slot, booked := slots[s.Task]; booked {
			late := s.Begun.Sub(slot)
			seen, most = seen+1, max(most, late)
			if late > 400*time.Millisecond && s.Begun.After(killed) {
				overdue++ // found by a pull
			}
			if late > grace+allowed {
				timely(t, "task %s starts %s after its slot, %s after the kill", s.Task, late, s.Begun.Sub(killed))
			}
		}
		if i > 0 && s.Begun.After(killed) {
			pause = max(pause, s.Begun.Sub(all[i-1].Begun))
		}
	}
	if allowed := latest + stalls.of(killed, killed.Add(grace+2*latest)); pause > allowed {
		timely(t, "no job starts for %s after the kill, want at most %s", pause, allowed)
	}
	t.Logf(
		"%d of %d tasks were seen with a slot, the latest started %s after its slot, %d were found overdue after "+
			"the kill; no start for %s at most",
		seen, jobs, most, overdue, pause)
	if overdue == 0 || seen < jobs/2 {
		timely(t, "the dead process held no wake-up: this test has tested nothing")
	}
	for _, text := range client.LRange(t.Context(), victim.startsKey(), 0, -1).Val() {
		var s start
		must(t, json.Unmarshal([]byte(text), &s))
		all = append(all, s)
	}
	for _, over := range throttletest.Check(scopes, checkable(all)) {
		t.Errorf("window over its limit: %s", over)
	}
}

// promised adds the slots of booked tasks that had no slot before.
func promised(t *testing.T, client *redis.Client, name string, slots map[string]time.Time) {
	t.Helper()
	fields, err := client.HGetAll(t.Context(), "thr:{"+name+"}:4:jobs").Result()
	must(t, err)
	for field, value := range fields {
		id, ours := strings.CutPrefix(field, "asynq:stays/")
		text, _, booked := strings.Cut(value, " ") // else the job is in line
		if id = strings.TrimSuffix(id, "/0"); !ours || !booked || !slots[id].IsZero() {
			continue
		}
		slot, err := strconv.ParseInt(text, 10, 64)
		must(t, err)
		if slot > 0 { // else the job is overdue
			slots[id] = time.UnixMicro(slot)
		}
	}
}
