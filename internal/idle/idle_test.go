package idle

import (
	"bufio"
	"bytes"
	"strings"
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
