package lua_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestReportOfTheShortestWindow: a report that names no window is about the shortest one, without windows about the
// shortest quota, whether or not a running limit stands before it. The share grows once in the shortest window, without
// windows once in the lease, and never within a day in a scope that has only quotas.
func TestReportOfTheShortestWindow(t *testing.T) {
	t.Parallel()
	lease := line.Limit{Units: 10, Span: line.Lease(30 * second), Precision: second}
	window := line.Limit{Units: 200, Span: line.Window(60 * second), Precision: 1}
	day, week := quotaOf("day@UTC", 100), quotaOf("week@UTC", 500)
	said := line.Report{Floor: 100, Limits: []line.ReportedLimit{{Units: 50, Remaining: -1}}}
	for name, row := range map[string]struct {
		limits []line.Limit
		served int64 // at once
		grows  int64 // when it grows, in us; 0: not within a day
	}{
		"quotas":              {[]line.Limit{day, week}, 500, 0},
		"lease, quotas":       {[]line.Limit{lease, day, week}, 500, 30 * second},
		"lease, window":       {[]line.Limit{lease, window}, 250, 60 * second},
		"lease, window, days": {[]line.Limit{lease, window, day}, 250, 60 * second},
		"lease":               {[]line.Limit{lease}, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, client *redis.Client) {
				s := &scripted{client: client, prefix: fmt.Sprintf("thr:{report-%p}:4:", t),
					settings: line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9, Scopes: map[string]line.Scope{
						"global": {Mode: line.Enforce, Limits: row.limits}}}}
				l, begins := line.New(), int64(1_795_219_498_000_000)
				served := func(after int64, r line.Report, before, is int64) {
					t.Helper()
					was, now, _ := l.Report(begins+after, s.settings, "global:", r)
					want := []int64{before, is}
					if diff := cmp.Diff(want, []int64{was, now}); diff != "" {
						t.Errorf("line, after %d us (-want +got):\n%s", after, diff)
					}
					got, err := s.report(begins+after, "global:", r)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff([]string{fmt.Sprint(before), fmt.Sprint(is)}, got[1:3]); diff != "" {
						t.Errorf("script, after %d us (-want +got):\n%s", after, diff)
					}
				}
				served(0, said, 1000, row.served)
				if row.grows == 0 {
					served(86_400*second-1, line.Report{Floor: 100}, row.served, row.served)
					return
				}
				served(row.grows-1, line.Report{Floor: 100}, row.served, row.served)
				served(row.grows, line.Report{Floor: 100}, row.served, row.served+100)
			})
		})
	}
}
