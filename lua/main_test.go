package lua_test

import (
	"os"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestMain(m *testing.M) {
	longtest.Default("rapid.checks", longtest.Of("25", "100"))
	longtest.CollectRarely()
	os.Exit(longtest.Quiet(m).Run())
}
