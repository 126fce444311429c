package dashboard_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestMain(m *testing.M) {
	logging.Disable() // that a server is away is what some tests are about
	goleak.VerifyTestMain(longtest.Quiet(m))
}
