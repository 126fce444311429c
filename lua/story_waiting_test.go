package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// TestLengthsAfterALoss deletes the records of jobs, or the lengths of lines. No lost job stays in a line, not even
// under a key for which no job comes any more. Lost lengths are right again once their lines have been empty.
func TestLengthsAfterALoss(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"jobs", "waiting"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				s := &scripted{client: client, prefix: "thr:{" + redistest.Name(t) + "}:4:",
					settings: line.Settings{Lookahead: second, Grace: 5 * second, Counts: true,
						Scopes: map[string]line.Scope{"global": {Mode: line.Enforce}, "tenant": {Mode: line.Enforce}}}}
				come := func(tenant, id string) {
					t.Helper()
					job := jobOf(tenant, id, 2)
					job.Plan, job.Bounds = true, []line.Length{{}, {Jobs: 3}}
					if _, got, err := s.reserve(dawn, []line.Job{job}); err != nil || !strings.HasPrefix(got[0], "2 ") {
						t.Fatalf("%s: %q, %v", id, got, err)
					}
				}
				expect := func(when string, want map[string]string) {
					t.Helper()
					lengths, err := client.HGetAll(t.Context(), s.prefix+"waiting").Result()
					if diff := cmp.Diff(want, lengths); err != nil || diff != "" {
						t.Errorf("%s, %v, the lengths are (-want +got):\n%s", when, err, diff)
					}
				}
				for i := range 3 {
					come("a", fmt.Sprint("j", i))
				}
				come("b", "other")
				expect("before the loss", map[string]string{"*": "4 0", "global:": "4 8", "tenant:a": "3 6", "tenant:b": "1 2"})
				client.Del(t.Context(), s.prefix+lost)
				come("a", "after")
				expect("when one more has come", map[string]string{"*": "1 0", "global:": "1 2", "tenant:a": "1 2"})
				for _, id := range []string{"j0", "j1", "after", "j2", "other"} {
					if _, err := s.leave(dawn, []string{id}); err != nil {
						t.Fatal(err)
					}
				}
				expect("when all have left", map[string]string{})
			})
		})
	}
}

// TestNothingIsCountedWithoutABound: a process that bounds no line writes no lengths.
func TestNothingIsCountedWithoutABound(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		c := newCrowded(t, client)
		if n, err := client.Exists(t.Context(), c.prefix+"waiting").Result(); err != nil || n != 0 {
			t.Errorf("%d keys with lengths, %v; want none", n, err)
		}
	})
}
