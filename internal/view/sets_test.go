package view_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

// TestForgotten: limits and modes that were set without an end, a week ago or earlier, count as forgotten. Limits and
// modes that end, or that were set later, do not.
func TestForgotten(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 8, 0, 0, 0, 0, time.UTC)
	week := now.Add(-7 * 24 * time.Hour)
	old := []inspect.Setting{
		{Scope: "tenant", Key: "acme", What: "limits", At: week},
		{What: "mode", Mode: "shadow", At: week.Add(-time.Hour)},
	}
	all := append([]inspect.Setting{
		{Scope: "tenant", Key: "globex", What: "limits", At: week.Add(time.Microsecond)},
		{Scope: "tenant", Key: "hooli", What: "limits", At: week, Until: now.Add(time.Hour)},
		{Scope: "tenant", Key: "acme", What: "pause", At: week, Until: now.Add(time.Hour)},
	}, old...)
	if diff := cmp.Diff(old, view.Forgotten(all, now)); diff != "" {
		t.Errorf("forgotten (-want +got):\n%s", diff)
	}
}
