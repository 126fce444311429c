package reliability_test

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// TestMain fails the run if a goroutine is left at the end. If one of the tests starts this
// binary, it becomes a worker process.
func TestMain(m *testing.M) {
	longtest.Default("test.parallel", "16") // drains take turns among themselves
	redis.SetLogger(silent{})               // go-redis logs each connection that a test cuts
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
	if settings, is := os.LookupEnv(soakVariable); is {
		if err := beSoaker(settings); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(longtest.Quiet(m))
}

type silent struct{}

// Printf writes nothing.
func (silent) Printf(context.Context, string, ...any) {}
