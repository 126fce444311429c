package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// reserveMany reserves so many jobs with an ID that begins with the name, and these keys.
func reserveMany(t *testing.T, th *throttle.Throttle, many int, name string, keys map[string]string) {
	t.Helper()
	for i := range many {
		job := throttle.Job{ID: fmt.Sprintf("%s-%d", name, i), Weight: 1, Keys: keys}
		if _, err := th.Reserve(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
}

// wants checks what a command line prints, and that it succeeds.
func wants(t *testing.T, client *redis.Client, line, text string) {
	t.Helper()
	r := asked(t, client.Options().Addr, strings.Fields(line)...)
	if r.status != 0 || !strings.Contains(r.out, text) {
		t.Errorf("%s: exit status %d, %s%swant %q", line, r.status, r.out, r.errs, text)
	}
}

// TestJobInABoundedLine: a job is known by its ID also where the lines of its processes have a bound.
func TestJobInABoundedLine(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		bounded := slices.Clone(scopes)
		bounded[1].MaxWaiting.Jobs = 9
		th := opened(t, client, bounded, 1)
		reserveMany(t, th, 5, "mail", map[string]string{"tenant": "acme"})
		wants(t, client, "job smtp mail-4", "tenant acme has a limit of 2/1h and 3 jobs in line; expected to start")
		wants(t, client, "job smtp mail-4", "2 of the 3 jobs of its lane before it")
	})
}

// TestVeryLongKey: of a key of which Redis has only the hash each verb that looks says the same as of others.
func TestVeryLongKey(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := opened(t, client, scopes, 1)
		long := strings.Repeat("long ", 100)
		reserveMany(t, th, 3, "mail", map[string]string{"tenant": long})
		for _, line := range []string{"lines smtp", "lines smtp --by flow", "lines smtp --by lane", "status smtp",
			"watch smtp --times 1"} {
			wants(t, client, line, "2/1h, 2 used, 0 booked")
		}
	})
}
