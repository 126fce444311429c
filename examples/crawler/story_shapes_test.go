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
		status, s, log := runJSON(t.Context(), t, "-redis", url, "-host-pages", "4", "-queue", redistest.Name(t))
		if status != rig.ExitOK || !s.OK {
			t.Fatalf("status %d\n%s", status, log)
		}
		if s.Pages == 0 || s.PauseViolations != 0 || s.RobotsViolations != 0 || s.WindowsOver != 0 ||
			s.Duplicates != 0 || s.Lost != 0 || s.Left != 0 {
			t.Errorf("got %+v", s)
		}
		t.Logf("%d pages of %d hosts, makespan %.2f s, put back %.2f times per page", s.Pages, s.Hosts, s.MakespanS,
			s.PutBacksPerJob)
	})
}
