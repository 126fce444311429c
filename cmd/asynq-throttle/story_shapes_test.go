package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestEveryShape: the command finds a throttle in a Cluster, behind sentinels and with a
// password, by the URL in -u or REDIS_URL.
func TestEveryShape(t *testing.T) {
	t.Parallel()
	guarded := redistest.Start(t)
	if err := guarded.Client(t).ConfigSet(t.Context(), "requirepass", "SECRET").Err(); err != nil {
		t.Fatal(err)
	}
	options := guarded.Options()
	options.Password = "SECRET"
	withPassword := redis.NewClient(options)
	t.Cleanup(func() { _ = withPassword.Close() })
	cluster, sentinel := redistest.SharedCluster(t), redistest.StartSentinel(t)
	for url, client := range map[string]redis.UniversalClient{
		"redis://:SECRET@" + guarded.Addr:                                                            withPassword,
		"redis-cluster://" + strings.Join(cluster.Addrs(), ","):                                      cluster.Client(t),
		"redis-sentinel://" + strings.Join(sentinel.Addrs(), ",") + "?master=" + sentinel.MasterName: sentinel.Client(t),
	} {
		th, err := throttle.New("shapes", client, scopes, &throttle.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b", "b2", "c"} {
			if _, err := th.Reserve(t.Context(),
				throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": "acme"}}); err != nil {
				t.Fatal(err)
			}
		}
		await(t, client, "shapes", 1)
		for _, verb := range [][2]string{
			{"ls", "shapes"}, {"status shapes", "2 jobs of 1 flow"}, {"lines shapes", "tenant acme"},
			{"job shapes c", "1 of the 2 jobs of its lane before it"},
			{"usage shapes tenant", "100 %"}, {"pause shapes domain x --for 1h", "undo: asynq-throttle resume shapes domain x"},
			{"changes shapes", "pause"}, {"check shapes", "as the newest"},
		} {
			line, want := verb[0], verb[1]
			r := asked(t, "", append(strings.Fields(line), "-u", url)...)
			if r.status != 0 || !strings.Contains(r.out, want) || strings.Contains(r.out+r.errs, "SECRET") {
				t.Errorf("%s, %s: %+v, want %q", url, line, r, want)
			}
		}
	}
}

// TestURLOfTheEnvironment: without -u it is REDIS_URL.
func TestURLOfTheEnvironment(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://nobody:SECRET@127.0.0.1:1/3?read_timeout=1s")
	r := answered(t, "", "", false, "ls", "-u", "")
	if r.status != failed || !strings.Contains(r.errs, "Redis at redis://127.0.0.1:1/3 does not answer") ||
		strings.Contains(r.errs, "SECRET") {
		t.Errorf("%+v", r)
	}
}
