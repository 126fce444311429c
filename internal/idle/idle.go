// Package idle makes tests with miniredis faster. Calls of asynq and of a throttle that find nothing to do are answered
// without running a script, and each script is parsed once for all servers.
package idle

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/lua"
)

// Answer lets a miniredis answer asynq without running asynq's script if the script would find nothing to do: nothing
// to take from a queue, nothing to move into one, or no completed task to delete. That is so if the list or the sorted
// set that the script would read does not exist, if the queue is paused, or if no task is old enough. A test in virtual
// time then takes about half as long: a server looks up to a hundred times per second, and miniredis builds an
// interpreter for each script.
//
// One answer differs: SCRIPT EXISTS does not know a script that was loaded and not called. Once a connection has
// selected another database than 0, all scripts run.
func Answer(t testing.TB, m *miniredis.Miniredis) {
	t.Helper()
	answer(t, m, func(*server.Peer, []string) bool { return false })
}

// pullsEvery is how often a pull runs even if no timer is due: a pull renews the expiry of the line's keys.
const pullsEvery = time.Minute

// AnswerPulls is Answer for tests that last for days. While no timer of a throttle is due, it also answers the pulls of
// the throttle, with what the script would answer. A process pulls at least twice a second, even while nothing waits.
func AnswerPulls(t testing.TB, m *miniredis.Miniredis) {
	t.Helper()
	pull := redis.NewScript(lua.Pull).Hash()
	var ran atomic.Int64 // when a pull ran last
	answer(t, m, func(peer *server.Peer, args []string) bool {
		if args[0] != pull || len(args) > 7 { // the script has to learn at once which grants have ended
			return false
		}
		prefix, now := strings.TrimSuffix(args[2], "control"), time.Now().UnixMicro()
		next := earliest(m, prefix+"timers")
		overdue := earliest(m, prefix+"overdue")
		if now-ran.Load() >= pullsEvery.Microseconds() || next <= now || overdue != 0 && overdue <= now {
			ran.Store(now)
			return false
		}
		peer.WriteStrings([]string{strconv.FormatInt(now, 10), strconv.FormatInt(next, 10), "0", "", "0"})
		return true
	})
}

// earliest returns the lowest score of a sorted set, 0 if there is none.
func earliest(m *miniredis.Miniredis, key string) int64 {
	members, err := m.SortedSet(key)
	if err != nil {
		return 0
	}
	m.Lock() // it is the very map that commands change
	defer m.Unlock()
	var lowest int64
	for _, score := range members {
		if at := int64(score); lowest == 0 || at < lowest {
			lowest = at
		}
	}
	return lowest
}

// parseOnce answers SCRIPT LOAD without parsing the script, and makes the first call of the script an EVAL: miniredis
// keeps what it parses for EVAL, for all servers of the process. To parse a throttle's script takes as long as to run
// it many times.
func parseOnce(m *miniredis.Miniredis) server.Hook {
	commands := m.Server() // asked for now: a miniredis that closes has none, and forgets it while hooks run
	var loaded sync.Map    // texts by their SHA1
	return func(peer *server.Peer, command string, args ...string) bool {
		switch {
		case command == "EVALSHA" && len(args) > 0:
			text, isFirst := loaded.LoadAndDelete(args[0])
			if isFirst {
				commands.Dispatch(peer, slices.Concat([]string{"EVAL", fmt.Sprint(text)}, args[1:]))
			}
			return isFirst
		case command != "SCRIPT" || len(args) == 0:
		case strings.EqualFold(args[0], "FLUSH"):
			loaded.Clear()
		case strings.EqualFold(args[0], "LOAD") && len(args) == 2:
			sha := redis.NewScript(args[1]).Hash()
			loaded.Store(sha, args[1])
			peer.WriteBulk(sha)
			return true
		}
		return false
	}
}

// dueBy returns the first argument of a script after its keys: the time of a call of forward or of
// DeleteExpiredCompletedTasks, in Unix seconds. Other scripts have the same keys and no time, as that of
// RunAllScheduledTasks has; they concern all tasks, and dueBy returns the end of time.
func dueBy(args []string) int64 {
	keys, err := strconv.Atoi(args[1])
	if err != nil || len(args) <= 2+keys {
		return math.MaxInt64
	}
	at, err := strconv.ParseInt(args[2+keys], 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return at
}

// answer sets the hook that answers in place of asynq's scripts. The function also may answer in place of others.
func answer(t testing.TB, m *miniredis.Miniredis, also func(peer *server.Peer, args []string) bool) {
	t.Helper()
	conn, err := m.Dial() // starts the server, which may have no listener
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	loads := parseOnce(m)
	var otherDatabases atomic.Bool
	m.Server().SetPreHook(func(peer *server.Peer, command string, args ...string) bool {
		if command == "SELECT" && args[0] != "0" {
			otherDatabases.Store(true)
		}
		if loads(peer, command, args...) {
			return true
		}
		if command != "EVALSHA" || len(args) < 4 || otherDatabases.Load() {
			return false
		}
		// asynq's rdb.go: the scripts of Dequeue, of forward and of DeleteExpiredCompletedTasks, by their keys.
		takes := args[1] == "4" && strings.HasSuffix(args[2], ":pending") && strings.HasSuffix(args[3], ":paused")
		moves := args[1] == "2" && strings.HasSuffix(args[3], ":pending") &&
			(strings.HasSuffix(args[2], ":scheduled") || strings.HasSuffix(args[2], ":retry"))
		deletes := args[1] == "1" && strings.HasSuffix(args[2], ":completed")
		switch {
		case takes && (!m.Exists(args[2]) || m.Exists(args[3])):
			peer.WriteNull()
		case moves && !m.Exists(args[2]), (moves || deletes) && earliest(m, args[2]) > dueBy(args):
			peer.WriteInt(0)
		default:
			return !takes && !moves && also(peer, args)
		}
		return true
	})
}
