package main

import (
	"os"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestMain(m *testing.M) {
	longtest.Default("test.parallel", "4") // they wait most of the time
	os.Exit(longtest.Quiet(m).Run())
}
