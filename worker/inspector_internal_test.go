package worker

import (
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// TestListedQueueHasNoTask: list adds a queue to asynq's set of queues, as asynq's client does before it
// enqueues, and writes nothing else.
func TestListedQueueHasNoTask(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	list(client, "mails")
	if got := m.Keys(); !slices.Equal(got, []string{"asynq:queues"}) {
		t.Errorf("Redis has %v, want asynq's list of queues alone", got)
	}
	if queues, err := asynq.NewInspectorFromRedisClient(client).Queues(); err != nil ||
		!slices.Equal(queues, []string{"mails"}) {
		t.Errorf("asynq lists %v (%v), want mails", queues, err)
	}
}
