package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		dieWithoutCleanup()
	}
	longtest.Default("test.parallel", "8") // the tests wait most of the time
	goleak.VerifyTestMain(longtest.Quiet(m))
}

func TestStartGivesEachTestItsOwnServer(t *testing.T) {
	t.Parallel()
	first := redistest.Start(t, "--maxmemory", "7mb").Client(t)
	second := redistest.Start(t).Client(t)
	ctx := t.Context()
	if err := first.Set(ctx, "k", "1", 0).Err(); err != nil {
		t.Fatalf("SET: %v", err)
	}
	if n, err := second.DBSize(ctx).Result(); err != nil || n != 0 {
		t.Errorf("keys of the other server: got %d, %v; want 0", n, err)
	}
	limit, err := first.ConfigGet(ctx, "maxmemory").Result()
	if err != nil || limit["maxmemory"] != strconv.Itoa(7<<20) {
		t.Errorf("maxmemory: got %v, %v; want %d", limit, err, 7<<20)
	}
	kept, err := second.ConfigGet(ctx, "save").Result()
	if err != nil || kept["save"] != "" {
		t.Errorf("save: got %v, %v; want it off", kept, err)
	}
}

func TestServerEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("inner", func(t *testing.T) { addr = redistest.Start(t).Addr })
	if addr == "" {
		t.Skip("redistest: the inner test did not start a server")
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Errorf("%s still listens after its test", addr)
	}
}

func TestSharedIsOneServer(t *testing.T) {
	t.Parallel()
	if first, second := redistest.Shared(t), redistest.Shared(t); first != second {
		t.Errorf("got two servers, %s and %s", first.Addr, second.Addr)
	}
	if err := redistest.Shared(t).Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING: %v", err)
	}
}

func TestPausedServerAnswersAfterResume(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("PING before: %v", err)
	}
	server.Pause()
	answer := make(chan error, 1)
	go func() { answer <- client.Ping(context.Background()).Err() }()
	select {
	case err := <-answer:
		t.Errorf("the paused server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	server.Resume()
	if err := <-answer; err != nil {
		t.Errorf("PING after: %v", err)
	}
}

func TestRestartLosesDataAndScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	ctx := t.Context()
	sha, err := client.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		t.Fatalf("SCRIPT LOAD: %v", err)
	}
	if err := client.Set(ctx, "k", "1", 0).Err(); err != nil {
		t.Fatalf("SET: %v", err)
	}
	server.Restart()
	if n, err := client.DBSize(ctx).Result(); err != nil || n != 0 {
		t.Errorf("keys after a restart: got %d, %v; want 0", n, err)
	}
	if err := client.EvalSha(ctx, sha, nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("EVALSHA after a restart: got %v, want NOSCRIPT", err)
	}
}

func TestStoppedServerRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	if conn, err := net.Dial("tcp", server.Addr); err == nil {
		_ = conn.Close()
		t.Error("a stopped server takes connections")
	}
	server.Restart()
	if err := server.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after Restart: %v", err)
	}
}

func TestNamesDiffer(t *testing.T) {
	t.Parallel()
	first, second := redistest.Name(t), redistest.Name(t)
	if first == second {
		t.Errorf("twice the same name %q", first)
	}
	t.Run("with a very long title, a slash/and ünicode, "+strings.Repeat("x", 100), func(t *testing.T) {
		name := redistest.Name(t)
		if len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool {
			return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", r)
		}) {
			t.Errorf("name %q: want up to 64 of A-Z a-z 0-9 _ -", name)
		}
	})
}

// The environment decides what happens if there is no Redis.
func TestNoRedisSkipsOrFails(t *testing.T) {
	for _, c := range []struct{ server, require, want string }{
		{"none", "", "skip: redistest: NOT TESTED on a real Redis: TheTest (no redis-server: REDIS_SERVER=none)"},
		{"none", "1",
			"fatal: redistest: no redis-server: REDIS_SERVER=none, and REQUIRE_REDIS=1 wants one: TheTest cannot run"},
		{"/nowhere/redis-server", "", "skip: redistest: NOT TESTED on a real Redis: TheTest (no redis-server: "},
	} {
		t.Setenv("REDIS_SERVER", c.server)
		t.Setenv("REQUIRE_REDIS", c.require)
		for name, start := range map[string]func(testing.TB){
			"Start":  func(t testing.TB) { redistest.Start(t) },
			"Shared": func(t testing.TB) { redistest.Shared(t) },

			"StartSentinel":      func(t testing.TB) { redistest.StartSentinel(t) },
			"StartCluster":       func(t testing.TB) { redistest.StartCluster(t) },
			"StartSteadyCluster": func(t testing.TB) { redistest.StartSteadyCluster(t) },
			"SharedCluster":      func(t testing.TB) { redistest.SharedCluster(t) },
		} {
			if got := outcome(start); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s with REDIS_SERVER=%s REQUIRE_REDIS=%s: got %q, want %q", name, c.server, c.require, got, c.want)
			}
		}
	}
}

// outcome runs f as a test named TheTest and returns how it ended.
func outcome(f func(testing.TB)) string {
	double := &tbDouble{ended: "ran"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(double)
	}()
	<-done
	return double.ended
}

// tbDouble is a testing.TB that records how the test ended.
type tbDouble struct {
	testing.TB
	ended string
}

func (d *tbDouble) Helper()      {}
func (d *tbDouble) Name() string { return "TheTest" }
func (d *tbDouble) Skipf(format string, args ...any) {
	d.ended = "skip: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (d *tbDouble) Fatalf(format string, args ...any) {
	d.ended = "fatal: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// childMode makes this test binary a process that starts a server and dies.
const childMode = "REDISTEST_DIE_WITHOUT_CLEANUP"

func dieWithoutCleanup() {
	server, err := redistest.Launch()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	server.Pause() // a stopped process must not stay either
	fmt.Println(server.Addr)
	if self, err := os.FindProcess(os.Getpid()); err != nil || self.Kill() != nil {
		os.Exit(1)
	}
	for { // until the signal has arrived
		runtime.Gosched()
	}
}

func TestServerEndsWithAKilledTestBinary(t *testing.T) {
	t.Parallel()
	redistest.Shared(t) // skips or fails if there is no Redis
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), childMode+"=1")
	out, err := child.Output()
	var exit *exec.ExitError
	addr := strings.TrimSpace(string(out))
	if !errors.As(err, &exit) || exit.ExitCode() == 1 || !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Fatalf("the child said %q and ended with %v", out, err)
	}
	redistest.Await(t, "the server of a test binary that was killed is gone", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}
