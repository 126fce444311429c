package lua_test

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestMain(m *testing.M) {
	longtest.Default("rapid.checks", longtest.Of("25", "100"))
	debug.SetGCPercent(800) // miniredis makes a Lua state for each call: most of what tests allocate
	os.Exit(longtest.Quiet(m).Run())
}
