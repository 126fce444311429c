package worker

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// TestProspect: by asynq's answer, a task in line will not come if it is gone, or if its queue is
// paused, whether the task rests there or is pending.
func TestProspect(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	enqueuer, tasks := asynq.NewClientFromRedisClient(client), asynq.NewInspectorFromRedisClient(client)
	s := &Shaper{inspector: newInspector(client, zap.NewNop()), log: zap.NewNop(), stopped: make(chan struct{})}
	at := time.Now().Add(time.Hour)
	for _, queue := range []string{"open", "paused"} {
		for id, task := range map[string]*asynq.Task{
			"pending":  asynq.NewTask("mail", nil),
			"archived": asynq.NewTask("mail", nil),
			"planned": marked(asynq.NewTask("mail", nil, asynq.ProcessAt(at)), []asynq.Option{asynq.ProcessAt(at)},
				plannedHeader, plannedFor(at)),
			"later": asynq.NewTask("mail", nil, asynq.ProcessAt(at)),
		} {
			if _, err := enqueuer.Enqueue(task, asynq.TaskID(id), asynq.Queue(queue)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tasks.ArchiveTask(queue, "archived"); err != nil {
			t.Fatal(err)
		}
	}
	if err := tasks.PauseQueue("paused"); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		queue, id string
		retried   int
		want      prospect
	}{
		{"open", "pending", 0, prospect{fate: underway}},
		{"open", "planned", 0, prospect{fate: resting}},
		{"open", "later", 0, prospect{fate: gone}},
		{"open", "archived", 0, prospect{fate: gone}},
		{"open", "deleted", 0, prospect{fate: gone}},
		{"nowhere", "pending", 0, prospect{fate: gone}},
		{"paused", "pending", 0, prospect{fate: underway, paused: true}},
		{"paused", "planned", 0, prospect{fate: resting, paused: true}},
		{"paused", "later", 0, prospect{fate: gone}},
		{"paused", "archived", 0, prospect{fate: gone}},
		{"open", "planned", 1, prospect{fate: gone}},
	} {
		if got := newProspects(s).look(wakeup{queue: row.queue, id: row.id, retried: row.retried}); got != row.want {
			t.Errorf("%s %s, attempt %d: got %+v, want %+v", row.queue, row.id, row.retried, got, row.want)
		}
	}
	_ = client.Close()
	if got := newProspects(s).look(wakeup{queue: "open", id: "pending"}); got.fate != unknown || got.leaves() {
		t.Errorf("without Redis: got %+v, want that nothing is known", got)
	}
}

// TestFateOfAPutBack: a task in retry is woken if it is at the same attempt and its last error is a
// put-back, even if a middleware of the user's has put words before it.
func TestFateOfAPutBack(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fate{
		(&PutBackError{}).Error():            resting,
		"mail: " + (&PutBackError{}).Error(): resting,
		"connection refused":                 gone,
		asynq.ErrLeaseExpired.Error():        gone,
	} {
		info := &asynq.TaskInfo{State: asynq.TaskStateRetry, Retried: 2, LastErr: text}
		if got := fateOf(2, info, nil); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
		if got := fateOf(1, info, nil); got != gone {
			t.Errorf("%q, at a later attempt: got %d, want %d", text, got, gone)
		}
	}
}
