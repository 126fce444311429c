package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	time.Local = time.UTC        // the reader's zone
	_ = os.Unsetenv("REDIS_URL") // each run says where
	os.Exit(longtest.Quiet(m).Run())
}

// onServers runs a test on miniredis and on a Redis of its own.
func onServers(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		if longtest.Watched && redistest.Available(t) {
			t.Skip("the race detector watches the same test on a real Redis")
		}
		t.Parallel()
		client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = client.Close() })
		test(t, client)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Start(t).Client(t))
	})
}

var scopes = []throttle.Scope{
	{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(100)}, Floor: 0.1},
	{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(2)}},
	{Name: "domain", Optional: true},
}

func mail(queue, id, tenant, domain string) throttle.Job {
	return throttle.Job{ID: worker.JobID(queue, id, 0), Weight: 1,
		Keys: map[string]string{"tenant": tenant, "domain": domain}}
}

// world is a throttle in the middle of its work: acme and "big corp" have used their limits
// and have jobs in line, one of acme's is a task of asynq; gmail.example is paused; of the limit
// of all the upstream serves 60 %.
func world(t *testing.T, client *redis.Client) *throttle.Throttle {
	t.Helper()
	th := opened(t, client, scopes, 1)
	ctx := t.Context()
	for _, tenant := range []string{"acme", "big corp"} {
		for i := range 5 {
			if _, err := th.Reserve(ctx, mail("mails", fmt.Sprintf("%s-%d", tenant[:3], i), tenant, "web.example")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := inspect.New(th).Pause(ctx, "domain", "gmail.example", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	said := throttle.Report{Limits: []throttle.ReportedLimit{{Units: 60, Remaining: -1}}}
	if _, err := th.Report(ctx, throttle.Global, "", said); err != nil {
		t.Fatal(err)
	}
	if _, err := th.Reserve(ctx, mail("mails", "hoo-0", "hooli", "gmail.example")); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Hour)
	planned := map[string]string{"Throttle-Planned": strconv.FormatInt(at.Unix(), 10)} // as worker.Client marks its tasks
	task := asynq.NewTaskWithHeaders("mail:send", nil, planned)
	for _, id := range []string{"acm-4", "hoo-0", "lone"} {
		if _, err := asynq.NewClientFromRedisClient(client).Enqueue(task, asynq.Queue("mails"), asynq.TaskID(id),
			asynq.ProcessAt(at)); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range map[string]string{"thr:{smtp}:asynq": "here", "asynq:throttle:deployment": "here"} {
		if err := client.Set(ctx, key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return th
}

// opened is a process of the throttle smtp that is configured so, the n-th that publishes.
func opened(t *testing.T, client *redis.Client, scopes []throttle.Scope, n int) *throttle.Throttle {
	t.Helper()
	th, err := throttle.New("smtp", client, scopes, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.New(th).Usage(t.Context(), scopes[0].Name, ""); err != nil {
		t.Fatal(err)
	}
	await(t, client, "smtp", n)
	return th
}

var (
	clocks  = regexp.MustCompile(`(20\d\d-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)?`)
	ranges  = regexp.MustCompile(`\((in|now|[0-9a-z.µ]+ ago)[^)]*\)`)
	spans   = regexp.MustCompile(`(^|[ (\n])\d+(\.\d+)?(µs|ms|s|m(\d+s)?|h\d\dm)\b`)
	blanks  = regexp.MustCompile(` {2,}`)
	actors  = regexp.MustCompile(`\S+@\S+ \([^,]+, process \d+\)`)
	process = regexp.MustCompile(`asynq-throttle\.test( on)? +\S+(, process)? +\d+`)
	loads   = regexp.MustCompile(`(?m)^Redis .*$`)
	notes   = regexp.MustCompile(`(?m)^note: .*\n`)
	library = regexp.MustCompile(`\(devel\)|v0\.0\.0\S*`)
)

// masked is text without what differs from run to run.
func masked(text string) string {
	text = notes.ReplaceAllString(text, "")
	text = loads.ReplaceAllString(text, "Redis …")
	text = actors.ReplaceAllString(text, "WHO")
	text = process.ReplaceAllString(text, "PROCESS")
	text = clocks.ReplaceAllString(text, "TIME")
	text = ranges.ReplaceAllString(text, "(…)")
	text = spans.ReplaceAllString(text, "${1}SPAN")
	text = library.ReplaceAllString(text, "VERSION")
	return blanks.ReplaceAllString(text, "  ")
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name + ".txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, strings.TrimSuffix(string(want), "\n"))
	}
}
