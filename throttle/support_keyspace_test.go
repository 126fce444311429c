package throttle_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// reserve asks for a job that must get an answer.
func reserve(t testing.TB, th *throttle.Throttle, job throttle.Job) throttle.Reservation {
	t.Helper()
	r, err := th.Reserve(t.Context(), job)
	if err != nil {
		t.Fatalf("Reserve %.60q: %v", job.ID, err)
	}
	return r
}

func isOptionError(err error, field string) bool {
	var wrong *throttle.OptionError
	return errors.As(err, &wrong) && wrong.Field == field && wrong.Reason != ""
}

// keyspace reads all that a throttle has in Redis: what each key holds, as text. It
// leaves out the last answer of each asker, and a control key under which nothing is set.
func keyspace(t testing.TB, client *redis.Client, th *throttle.Throttle) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	for _, key := range keyNames(t, client, th) {
		_, end, _ := strings.Cut(key, "}:4:")
		if strings.HasPrefix(end, "asked:") {
			continue
		}
		if text := content(t, client, key); end != "control" || text != "string - expires:true" {
			keys[key] = text
		}
	}
	return keys
}

// keyNames returns the throttle's keys, except for the keys in which processes publish, which no
// decision reads.
func keyNames(t testing.TB, client *redis.Client, th *throttle.Throttle) []string {
	t.Helper()
	var names []string
	scan := client.Scan(t.Context(), 0, "thr:{"+th.Name()+"}:*", 1000).Iterator()
	for scan.Next(t.Context()) {
		_, kind, _ := strings.Cut(scan.Val(), "}:")
		if !slices.Contains([]string{"processes", "4:changes", "4:backlog", "4:noting"}, kind) {
			names = append(names, scan.Val())
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// content returns the content of a key, and whether the key expires.
func content(t testing.TB, client *redis.Client, key string) string {
	t.Helper()
	ctx := t.Context()
	kind, err := client.Type(ctx, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	var value any
	switch kind {
	case "string":
		value, err = client.Get(ctx, key).Result()
	case "zset":
		value, err = client.ZRangeWithScores(ctx, key, 0, -1).Result()
	case "hash":
		value, err = client.HGetAll(ctx, key).Result() // fmt sorts it
	case "list":
		value, err = client.LRange(ctx, key, 0, -1).Result()
	default:
		t.Fatalf("key %q is a %s", key, kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %v expires:%t", kind, value, ttl(t, client, key) > 0)
}

// ttl returns how long a key still lives; not above 0 if it does not expire.
func ttl(t testing.TB, client *redis.Client, key string) time.Duration {
	t.Helper()
	left, err := client.PTTL(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// unchanged fails the test if f changes anything of the throttle's in Redis.
func unchanged(t testing.TB, client *redis.Client, th *throttle.Throttle, f func()) {
	t.Helper()
	before := keyspace(t, client, th)
	f()
	if diff := cmp.Diff(before, keyspace(t, client, th)); diff != "" {
		t.Errorf("what is in Redis changed (-before +after):\n%s", diff)
	}
}
