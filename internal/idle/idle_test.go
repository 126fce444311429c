package idle

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// A test's miniredis closes while a connection still calls: the call is answered.
func TestCallWhileTheServerCloses(t *testing.T) {
	m := miniredis.NewMiniRedis()
	Answer(t, m)
	hook := parseOnce(m)
	m.Close()

	var answers bytes.Buffer
	peer := server.NewPeer(bufio.NewWriter(&answers))
	const script = "return 7"
	for _, args := range [][]string{{"SCRIPT", "LOAD", script}, {"EVALSHA", redis.NewScript(script).Hash(), "0"}} {
		if !hook(peer, args[0], args[1:]...) {
			t.Fatalf("%s is left to miniredis", args[0])
		}
	}
	peer.Flush()
	if !strings.HasSuffix(answers.String(), ":7\r\n") {
		t.Errorf("answered %q, want what the script returns at the end", answers.String())
	}
}

// While a poll looks for the earliest task, another connection changes the set: the race detector finds nothing.
func TestPollBesideChanges(t *testing.T) {
	m := miniredis.RunT(t)
	if _, err := m.ZAdd("scheduled", 7, "first"); err != nil {
		t.Fatal(err)
	}
	var changes sync.WaitGroup
	changes.Go(func() {
		for n := range 1000 {
			if _, err := m.ZAdd("scheduled", float64(n+8), fmt.Sprint(n)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 1000 {
		if at := earliest(m, "scheduled"); at != 7 {
			t.Fatalf("%d is the earliest, want 7", at)
		}
	}
	changes.Wait()
}
