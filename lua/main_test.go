package lua_test

import (
	"os"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestMain(m *testing.M) {
	longtest.Properties()
	longtest.CollectRarely()
	os.Exit(longtest.Quiet(m).Run())
}
