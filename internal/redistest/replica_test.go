package redistest_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

func TestReplicaHasWhatThePrimaryHad(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary := redistest.Start(t)
	writer := primary.Client(t)
	set := func(key string) {
		t.Helper()
		if err := writer.Set(ctx, key, "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("before")
	replica := redistest.StartReplica(t, primary)
	reader := replica.Client(t)
	for n := range 20 {
		key := fmt.Sprint("n", n)
		set(key)
		replica.AwaitSync(primary)
		if got, err := reader.Exists(ctx, "before", key).Result(); err != nil || got != 2 {
			t.Fatalf("after %s: got %d of 2 keys, %v", key, got, err)
		}
	}
	if err := reader.Set(ctx, "n", "2", 0).Err(); !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("a write to the replica: got %v, want READONLY", err)
	}

	replica.Promote()
	if err := reader.Set(ctx, "n", "2", 0).Err(); err != nil {
		t.Errorf("a write after Promote: %v", err)
	}
	set("lost")
	primary.Follow(replica)
	if got, err := writer.Exists(ctx, "lost", "before").Result(); err != nil || got != 1 {
		t.Errorf("the old primary, which now follows, has %d keys, %v; want the one before", got, err)
	}
}
