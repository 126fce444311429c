package worker_test

import (
	"context"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/lua"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// throttleRules are the least rights that the throttle's user needs: the keys, the commands that
// go-redis sends, the commands of the scripts except INFO, and HGETALL, with which processes read what
// others publish.
func throttleRules(t *testing.T) string {
	t.Helper()
	rules := "resetkeys ~thr:* resetchannels -@all +ping +hello +auth +evalsha +script|load +hgetall"
	for _, text := range []string{lua.Reserve, lua.Pull, lua.Leave, lua.Settle, lua.Running, lua.Set, lua.Report,
		lua.Usage, lua.Lines} {
		calls := regexp.MustCompile(`\b(?:call|write)\((?:\w+ and )?'([A-Z]+)'(?: or '([A-Z]+)')?`)
		for _, match := range calls.FindAllStringSubmatch(text, -1) {
			for _, command := range match[1:] {
				if command != "" {
					rules += " +" + strings.ToLower(command)
				}
			}
		}
	}
	return rules
}

// asynqRules suffice for asynq v0.26's servers, clients and inspectors.
const asynqRules = "resetkeys ~asynq:* resetchannels &asynq:* -@all +@read +@write +@scripting +@connection " +
	"+@pubsub -@dangerous"

// TestTwoUsers_F18_T10: the throttle and asynq each have a user of their own on one server,
// and neither user may touch the keys of the other. Tasks are put back, pulled, woken and run.
func TestTwoUsers_F18_T10(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	user := func(name, rules string) *redis.Client {
		args := []any{"ACL", "SETUSER", name, "reset", "on", ">secret"}
		for _, rule := range strings.Fields(rules) {
			args = append(args, rule)
		}
		if err := server.Client(t).Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("ACL SETUSER %s: %v", name, err)
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: "secret"})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	deciding, queueing := user("throttle", throttleRules(t)), user("asynq", asynqRules)
	for name, refused := range map[string]error{
		"the throttle's user": deciding.Set(t.Context(), "asynq:x", "1", 0).Err(),
		"asynq's user":        queueing.Set(t.Context(), "thr:x", "1", 0).Err(),
	} {
		if !redis.HasErrorPrefix(refused, "NOPERM") {
			t.Errorf("%s writes the other's key: got %v, want NOPERM", name, refused)
		}
	}

	patient := throttle.Options{Timeout: time.Minute}
	th, err := throttle.New("users", deciding, perTenant(10, 500*time.Millisecond), &patient)
	if err != nil {
		t.Fatal(err)
	}
	opts, logs := watched()
	s, err := worker.New(th, queueing, jobOf, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	var runs atomic.Int64
	tasks := asynq.NewServerFromRedisClient(queueing,
		s.Configure(asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel, Logger: silent{}}))
	if err := tasks.Start(
		s.Wrap(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { runs.Add(1); return nil }))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(); tasks.Shutdown() })
	client := asynq.NewClientFromRedisClient(queueing)
	const all = 40
	for range all {
		if _, err := client.Enqueue(worker.NewTask("mail", nil, headers("acme", 1))); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Await(t, "all have run", func() bool { return runs.Load() == all })
	st := s.Stats()
	if st.Unchecked != 0 {
		t.Errorf("%+v: want none unchecked", st)
	}
	if st.PutBack == 0 {
		t.Logf("%+v: this machine was too slow for any to be put back", st)
	}
	if got := errorsIn(logs); got != 0 {
		t.Errorf("%d errors logged: %v", got, logs.All())
	}
}
