package dashboard_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(longtest.Quiet(m))
}
