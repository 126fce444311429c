package reliability_test

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// TestMain fails the run if a goroutine is left after whatever happened. Run by one of
// the tests, it is a worker process.
func TestMain(m *testing.M) {
	// Drains take turns among themselves; a flag on the command line wins.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	redis.SetLogger(silent{}) // go-redis tells of each connection that a test cuts
	if settings, is := os.LookupEnv(childVariable); is {
		if err := beChild(settings); err != nil {
			panic(err)
		}
		return
	}
	if settings, is := os.LookupEnv(runnerVariable); is {
		if err := beRunner(settings); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

type silent struct{}

// Printf writes nothing.
func (silent) Printf(context.Context, string, ...any) {}
