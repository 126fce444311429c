package throttle_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// TestMain fails the run if a goroutine is left: whatever happens to Redis, no call may
// leave a goroutine behind for longer than its client lives. The binary also runs as one
// of several processes, see TestF55_EightProcesses.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	if text := os.Getenv(errandVariable); text != "" {
		if err := obey(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	longtest.Default("test.parallel", "4") // many wait most of the time
	longtest.Properties()
	longtest.CollectRarely()
	// dialing is left by a client that found no server: it ends within a second of the client's Close.
	dialing := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	goleak.VerifyTestMain(longtest.Quiet(m), dialing)
}

// silent keeps go-redis from writing about each refused connection.
type silent struct{}

// Printf writes nothing.
func (silent) Printf(context.Context, string, ...any) {}
