package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// mostTime is how long any verb may take with 100,000 jobs in line, from the start of the process to its end. Other
// tests make the machine slow, so the processor's time is measured instead, that of the command and of Redis together.
// On an idle machine it is more than the time that passes, except for status, which waits for 1 s, and for watch, which
// waits for 50 ms.
const mostTime = 300 * time.Millisecond

// crowd fills a throttle: jobs in line, of tenants that send to a domain each.
func crowd(t *testing.T, client *redis.Client, jobs, tenants int) {
	t.Helper()
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(1_000_000)}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(1)}},
		{Name: "domain", Limits: []throttle.Limit{throttle.PerHour(1000)}},
	}
	th, err := throttle.New("big", client, scopes, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for first := 0; first < jobs; first += 1000 {
		some := make([]throttle.Job, min(1000, jobs-first))
		for i := range some {
			tenant := (first + i) % tenants
			some[i] = throttle.Job{ID: fmt.Sprintf("mail-%d", first+i), Weight: 1,
				Keys: map[string]string{"tenant": fmt.Sprint("t", tenant), "domain": fmt.Sprint("d", tenant)}}
		}
		for _, answer := range th.ReserveAll(t.Context(), some) {
			if answer.Err != nil {
				t.Fatal(answer.Err)
			}
		}
	}
	await(t, client, "big", 1)
}

// await waits until so many processes have published.
func await(t *testing.T, client redis.UniversalClient, name string, n int) {
	t.Helper()
	redistest.Await(t, fmt.Sprint(n, " processes have published"), func() bool {
		th, err := inspect.Attach(t.Context(), name, client)
		if err != nil {
			return false
		}
		all, err := th.Processes(t.Context())
		return err == nil && len(all) >= n
	})
}

// TestVerbsAreFast: with many jobs in line each verb, as a process of its own, answers
// soon. LONG=1 has 105,000 jobs and 10,000 scope keys.
func TestVerbsAreFast(t *testing.T) {
	server := redistest.Start(t)
	tenants := longtest.Of(500, 5000)
	client := server.Client(t)
	crowd(t, client, longtest.Of(10_000, 105_000), tenants)
	binary := filepath.Join(t.TempDir(), "asynq-throttle")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, line := range []string{
		"ls", "status big", "lines big", "lines big --by flow", "lines big --by lane", "job big mail-9000",
		"usage big", "usage big tenant", "usage big tenant t7",
		"limits get big", "limits set big tenant t7 2/1h", "limits set big tenant 5/1h --dry-run",
		"limits reset big tenant t7",
		"pause big domain d3 --for 1h", "resume big domain d3", "mode big", "mode big tenant shadow", "mode big tenant reset",
		"forecast big --jobs 1000 --key tenant=new --key domain=d1", "check big", "changes big", "watch big --times 1",
	} {
		best, least := time.Hour, time.Hour
		for range 3 {
			before := redisTime(t, client)
			cmd := exec.CommandContext(t.Context(), binary,
				append([]string{"-u", "redis://" + server.Addr}, strings.Fields(line)...)...)
			began := time.Now()
			out, err := cmd.CombinedOutput()
			best = min(best, time.Since(began))
			if err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
			least = min(least, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()+redisTime(t, client)-before)
		}
		t.Logf("%4d ms, of CPU with Redis %4d ms  %s", best.Milliseconds(), least.Milliseconds(), line)
		if least > mostTime && longtest.Full() {
			t.Errorf("%s takes %s of CPU", line, least)
		}
	}
}

// redisTime is what Redis has used of the processor.
func redisTime(t *testing.T, client *redis.Client) time.Duration {
	t.Helper()
	info, err := client.Info(t.Context(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += seconds
		}
	}
	return time.Duration(sum * float64(time.Second))
}
