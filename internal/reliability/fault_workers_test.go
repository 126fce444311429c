package reliability_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
)

const workers = "worker processes"

// TestWorkerKilled_F32_F33 kills a process while some of its handlers run and while some of its
// tasks go back to asynq, which has not taken them yet. asynq finds both kinds when their leases are
// over: tasks whose handler ran run twice, which is asynq's at-least-once; the others run once.
func TestWorkerKilled_F32_F33(t *testing.T) {
	t.Parallel()
	longtest.Only(t, forgottenReason)
	server, queue := redistest.Start(t), redistest.Start(t)
	d := newDrain(t, redistest.Name(t), quotas, reach{
		func() redis.UniversalClient { return server.Client(t) }, func() redis.UniversalClient { return queue.Client(t) },
	}, server.Client(t), queue.Client(t))
	notes := queue.Client(t)
	const held = 5
	victim := startChild(t, childSettings{Name: d.name, Decide: server.Addr, Work: queue.Addr, Scopes: quotas,
		Queue: "default", Holds: held})
	d.begin(2)
	d.until("the process holds handlers and put-backs", time.Minute, func() bool {
		return notes.LLen(t.Context(), victim.heldKey()).Val() == held &&
			notes.LLen(t.Context(), victim.putBackKey()).Val() == held
	})
	f := d.strike(victim.kill, 0, nil)

	began := make(map[string]bool) // tasks that the dead process began
	for _, text := range notes.LRange(t.Context(), victim.startsKey(), 0, -1).Val() {
		var s start
		must(t, json.Unmarshal([]byte(text), &s))
		must(t, d.add(s))
		began[s.Task] = true
	}
	active, err := d.tasks.ListActiveTasks("default", asynq.PageSize(1000))
	must(t, err)
	left, again := make(map[string]bool), 0
	for _, info := range active {
		left[info.ID] = true
		if began[info.ID] {
			again++
		}
	}
	for _, key := range []string{victim.heldKey(), victim.putBackKey()} {
		for _, id := range notes.LRange(t.Context(), key, 0, -1).Val() {
			if !left[id] {
				t.Errorf("task %s of %s is not active after the kill: this test has tested nothing", id, key)
			}
		}
	}
	d.finish(f, reliability.Row{Cases: "F32, F33",
		Done: "kill -9 of one of three, with 5 handlers running and 5 put-backs that asynq did not get", Servers: workers},
		allowance{again: again, recoverer: true})
}

// TestRollingRestart_F35 replaces the processes one after the other, as a rollout does.
func TestRollingRestart_F35(t *testing.T) {
	t.Parallel()
	d, _ := apart(t)
	f := d.strike(func() {
		for _, old := range d.processes[:2] {
			d.run(1)
			old.stop()
		}
	}, 0, nil)
	d.finish(f, reliability.Row{Cases: "F35", Done: "both replaced, one after the other", Servers: workers}, allowance{})
}

// TestTasksDeleted_F36 deletes tasks that wait, booked and in line.
func TestTasksDeleted_F36(t *testing.T) {
	t.Parallel()
	longtest.Only(t, ofItsClass)
	d, _ := apart(t)
	most, deleted := longtest.Of(60, 250), 0
	f := d.strike(func() {
		d.until("enough waiting tasks are deleted", time.Minute, func() bool {
			waiting, err := d.tasks.ListRetryTasks("default", asynq.PageSize(most-deleted))
			must(t, err)
			for _, info := range waiting {
				if d.tasks.DeleteTask(info.Queue, info.ID) == nil { // else the task has just begun
					deleted++
				}
			}
			return deleted == most
		})
	}, 0, nil)
	d.jobs -= deleted
	d.finish(f, reliability.Row{Cases: "F36",
		Done: fmt.Sprint(most, " waiting tasks deleted from asynq's retry set"), Servers: "asynq's queue"}, allowance{})
}

// TestQueuePaused_F37 pauses the queue until the slots of the booked tasks have passed.
func TestQueuePaused_F37(t *testing.T) {
	t.Parallel()
	d, _ := apart(t)
	f := d.strike(func() { must(t, d.tasks.PauseQueue("default")) }, 3*time.Second,
		func() { must(t, d.tasks.UnpauseQueue("default")) })
	d.finish(f, reliability.Row{Cases: "F37", Done: "paused over the slots", Servers: "asynq's queue"}, allowance{})
}
