package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// TestLengthsAfterALoss loses the records of jobs, or the lengths of lines. No lost job stays in a line, and lengths
// that were lost are right again when their lines have been empty.
func TestLengthsAfterALoss(t *testing.T) {
	t.Parallel()
	rows := []struct {
		lost        string
		left, empty string // the length of a line of three jobs after one more came, and of the line when it is empty
	}{
		{"jobs", "1 2", ""},
		{"waiting", "1 2", ""},
	}
	for _, row := range rows {
		t.Run(row.lost, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				s := &scripted{client: client, prefix: "thr:{" + redistest.Name(t) + "}:4:",
					settings: line.Settings{Lookahead: second, Grace: 5 * second, Counts: true,
						Scopes: map[string]line.Scope{"global": {Mode: line.Enforce}, "tenant": {Mode: line.Enforce}}}}
				come := func(id string) {
					t.Helper()
					job := jobOf("a", id, 2)
					job.Plan, job.Bounds = true, []line.Length{{}, {Jobs: 3}}
					if _, got, err := s.reserve(dawn, []line.Job{job}); err != nil || !strings.HasPrefix(got[0], "2 ") {
						t.Fatalf("%s: %q, %v", id, got, err)
					}
				}
				length := func() string {
					t.Helper()
					return client.HGet(t.Context(), s.prefix+"waiting", "tenant:a").Val()
				}
				for i := range 3 {
					come(fmt.Sprint("j", i))
				}
				if got := length(); got != "3 6" {
					t.Fatalf("a line of three jobs has the length %q", got)
				}
				client.Del(t.Context(), s.prefix+row.lost)
				come("after")
				if got := length(); got != row.left {
					t.Errorf("after the loss, the length is %q, want %q", got, row.left)
				}
				for _, id := range []string{"j0", "j1", "after", "j2"} {
					if _, err := s.leave(dawn, []string{id}); err != nil {
						t.Fatal(err)
					}
				}
				if got := length(); got != row.empty {
					t.Errorf("the length of an empty line is %q, want %q", got, row.empty)
				}
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
