package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// TestRunChecksRedis: nothing begins on a server that cannot decide; other findings about the server are only printed.
func TestRunChecksRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--replicaof", "127.0.0.1", "1", "--maxmemory-policy", "allkeys-lru")
	var out, log bytes.Buffer
	status := run(t.Context(), []string{"-redis", server.Addr}, &out, &log)
	for _, want := range []string{"emailer: redis: note: maxmemory-policy is allkeys-lru", "this server is a replica"} {
		if status != rig.ExitUsage || !strings.Contains(log.String(), want) {
			t.Errorf("status %d, want %d and to read %q:\n%s", status, rig.ExitUsage, want, log.String())
		}
	}
}
