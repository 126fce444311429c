package main

import (
	"os"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestMain(m *testing.M) { os.Exit(longtest.Quiet(m).Run()) }
