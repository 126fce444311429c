// Package redistest starts real redis-server processes for tests, alone, as replicas,
// under sentinels and as a cluster, and puts a faulty network in front of any server.
//
// A test that needs a Redis of its own (to stop it, to configure it) calls
// Start. A test that only needs some Redis calls Shared, which starts one process
// for the whole test binary, and keeps to its own keys, for example with Name. The same
// goes for StartCluster and SharedCluster.
//
// Every process listens on loopback only, leaves nothing on disk and is gone
// when the test or the test binary has ended, also after a panic or a timeout.
//
// Without a redis-server in PATH a test that needs one is skipped, with a line that
// says so. Environment:
//
//	REQUIRE_REDIS=1      no redis-server is a failure instead (continuous integration)
//	REDIS_SERVER=PATH    this program instead of the one in PATH
//	REDIS_SERVER=none    as if there were none
//
// Nothing here works inside a testing/synctest bubble: processes and sockets
// run on real time.
package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Start starts a redis-server for the test and stops it when the test ends. The
// args are options as on redis-server's command line, such as "--maxmemory",
// "3mb"; they come last, so they win, and must allow INFO to a client without a
// password. Start returns when the server answers, and ends the test if it cannot
// start one.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	requireProgram(t)
	server, err := Launch(args...)
	if err != nil {
		t.Fatal(err)
	}
	stopWith(t, server)
	return server
}

// stopWith ends a server with the test.
func stopWith(t testing.TB, server *Server) {
	server.tb = t
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("redistest: stop redis-server: %v", err)
		}
	})
}

func addrs(servers []*Server) []string {
	all := make([]string, len(servers))
	for i, server := range servers {
		all[i] = server.Addr
	}
	return all
}

// Shared returns the one redis-server of this test binary, which it starts at the
// first call. Tests run on it side by side: use your own keys, no FLUSHDB, and
// do not pause or restart it. The server ends with the test binary.
func Shared(t testing.TB) *Server {
	t.Helper()
	requireProgram(t)
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return server
}

var shared = sync.OnceValues(func() (*Server, error) { return Launch() })

var names atomic.Int64

// Name returns a name that no other test of this or any other running test
// binary uses: good as the name of a throttle or as a key prefix. It consists
// of at most 64 of the characters A-Z a-z 0-9 _ -.
func Name(t testing.TB) string {
	t.Helper()
	plain := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, t.Name())
	return fmt.Sprintf("%.40s-%d-%d", plain, os.Getpid(), names.Add(1))
}

// Available reports whether there is a redis-server to start, for a test that has another
// server to run on. If there is none, it says so loudly, or fails the test if Redis is
// required.
func Available(t testing.TB) bool {
	t.Helper()
	_, err := program()
	switch {
	case err == nil:
		return true
	case os.Getenv("REQUIRE_REDIS") == "1":
		requireProgram(t)
	}
	t.Logf("redistest: NOT TESTED on a real Redis: %s (%v)", t.Name(), err)
	return false
}

// requireProgram skips a test without a redis-server, loudly, or fails it if Redis is required.
func requireProgram(t testing.TB) {
	t.Helper()
	_, err := program()
	if err == nil {
		return
	}
	if os.Getenv("REQUIRE_REDIS") == "1" {
		t.Fatalf("redistest: %v, and REQUIRE_REDIS=1 wants one: %s cannot run", err, t.Name())
	}
	t.Skipf("redistest: NOT TESTED on a real Redis: %s (%v)", t.Name(), err)
}

// program finds redis-server.
func program() (string, error) {
	name := os.Getenv("REDIS_SERVER")
	switch name {
	case "":
		name = "redis-server"
	case "none":
		return "", fmt.Errorf("no redis-server: REDIS_SERVER=none")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no redis-server: %w", err)
	}
	return path, nil
}
