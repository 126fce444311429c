package main

import (
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// onShapes runs a test on a cluster and through sentinels, by what -redis takes.
func onShapes(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, "redis-cluster://"+strings.Join(redistest.SharedCluster(t).Addrs(), ","))
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartSentinel(t)
		test(t, "redis-sentinel://"+strings.Join(s.Addrs(), ",")+"?master="+s.MasterName)
	})
}

func TestRunOnClusterAndSentinel(t *testing.T) {
	t.Parallel()
	onShapes(t, func(t *testing.T, url string) {
		status, s, log := runJSON(t.Context(), t, "-campaign", writeCampaign(t, 40), "-redis", url, "-queue",
			redistest.Name(t),
			"-limits", "global=10/500ms,200/3s;tenant=8/500ms;domain=9/500ms")
		if status != rig.ExitOK || !s.OK {
			t.Fatalf("status %d\n%s", status, log)
		}
		if s.Mails != 42 || s.Delivered != 41 || s.FailedForGood != 1 || s.Duplicates != 0 || s.Lost != 0 ||
			s.WindowsOver != 0 {
			t.Errorf("got %+v", s)
		}
		t.Logf("makespan %.2f s, optimum %.2f s, put back %.2f times per mail", s.MakespanS, s.OptimumS, s.PutBacksPerJob)
	})
}
