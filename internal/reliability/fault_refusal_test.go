package reliability_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
)

// TestRefusals lets Redis answer, but not decide. Tasks must be put back for that reason.
func TestRefusals(t *testing.T) {
	t.Parallel()
	do := func(command ...any) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, server *redistest.Server) {
			must(t, server.Client(t).Do(t.Context(), command...).Err())
		}
	}
	rows := map[string]struct {
		cases, done string
		length      time.Duration
		begin, end  func(*testing.T, *redistest.Server)
		failure     string
	}{
		"F04 stopped": {
			"F4", "SIGSTOP", longtest.Of(4*time.Second, 10*time.Second),
			func(_ *testing.T, s *redistest.Server) { s.Pause() },
			func(_ *testing.T, s *redistest.Server) { s.Resume() }, "timeout",
		},
		"F10 a replica": {
			"F10", "made a replica: READONLY", 3 * time.Second,
			do("REPLICAOF", "127.0.0.1", "1"), do("REPLICAOF", "NO", "ONE"), "readonly",
		},
		"F14 out of memory": {
			"F14", "out of memory under noeviction: OOM", 3 * time.Second,
			do("CONFIG", "SET", "maxmemory", "1"), do("CONFIG", "SET", "maxmemory", "0"), "oom",
		},
		"F19 no replicas": {
			"F19", "too few replicas: NOREPLICAS", 3 * time.Second,
			do("CONFIG", "SET", "min-replicas-to-write", "1"), do("CONFIG", "SET", "min-replicas-to-write", "0"), "noreplica",
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "F14 out of memory" {
				longtest.Only(t, ofItsClass)
			}
			d, server := apart(t, "--maxmemory-policy", "noeviction")
			f := d.strike(func() { row.begin(t, server) }, row.length, func() { row.end(t, server) })
			d.finish(f, reliability.Row{Cases: row.cases, Done: row.done, Servers: ownRedis}, allowance{})
			if d.putBackFor(row.failure) == 0 {
				timely(t, "no task was put back for %s: this test has tested nothing", row.failure)
			}
		})
	}
}

// TestBusy_F17 lets a script of another program block Redis until the script is killed.
func TestBusy_F17(t *testing.T) {
	t.Parallel()
	longtest.Only(t, ofItsClass)
	d, server := apart(t, "--lua-time-limit", "20")
	// The client sends the script once: sent again after the kill, it would block Redis again.
	slow := clientOf(t, &redis.Options{Addr: server.Addr, MaxRetries: -1, ReadTimeout: time.Minute})
	var blocked sync.WaitGroup
	f := d.strike(
		func() {
			blocked.Go(func() { _ = slow.Eval(context.Background(), "while true do end", nil).Err() })
		}, 3*time.Second,
		func() {
			must(t, server.Client(t).ScriptKill(t.Context()).Err())
			blocked.Wait()
		})
	d.finish(f, reliability.Row{Cases: "F17", Done: "a script of somebody else: BUSY, SCRIPT KILL at the end",
		Servers: ownRedis}, allowance{})
	if d.putBackFor("busy") == 0 {
		timely(t, "no task was put back for BUSY: this test has tested nothing")
	}
}
