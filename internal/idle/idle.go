// Package idle spares tests in virtual time what asynq does while there is nothing to do.
package idle

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Answer lets a miniredis answer asynq without running its scripts when there is
// nothing to take from a queue and nothing to move into one: the list or the sorted set
// that the script would read is not there. Nothing else differs, and a test in virtual
// time takes about half as long: a server looks up to a hundred times per second, and
// miniredis builds an interpreter for each script.
//
// With a connection to another database than 0 all scripts run from then on.
func Answer(t testing.TB, m *miniredis.Miniredis) {
	t.Helper()
	conn, err := m.Dial() // starts the server, which may have no listener
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	var otherDatabases atomic.Bool
	m.Server().SetPreHook(func(peer *server.Peer, command string, args ...string) bool {
		if command == "SELECT" && args[0] != "0" {
			otherDatabases.Store(true)
		}
		if command != "EVALSHA" || len(args) < 4 || otherDatabases.Load() {
			return false
		}
		// asynq's rdb.go: the scripts of Dequeue and of forward, by their keys.
		takes := args[1] == "4" && strings.HasSuffix(args[2], ":pending") && strings.HasSuffix(args[3], ":paused")
		moves := args[1] == "2" && strings.HasSuffix(args[3], ":pending") &&
			(strings.HasSuffix(args[2], ":scheduled") || strings.HasSuffix(args[2], ":retry"))
		switch {
		case !takes && !moves, m.Exists(args[2]):
			return false
		case takes:
			peer.WriteNull()
		case moves:
			peer.WriteInt(0)
		}
		return true
	})
}
