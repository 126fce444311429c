package line_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestPlayOfHoursThatNeverMeet: jobs that may start in the morning only, by one scope, and in the evening only, by
// another, are taken never to start. Each look at one of them goes over a week of hours.
func TestPlayOfHoursThatNeverMeet(t *testing.T) {
	t.Parallel()
	open := func(text string) []line.Limit {
		hours, err := calendar.ParseHours(text)
		if err != nil {
			t.Fatal(err)
		}
		return []line.Limit{{Units: -1, Span: line.Open(hours), Precision: 1}}
	}
	settings := settingsOf(map[string][]line.Limit{
		"global": open("08:00-09:00 @UTC"), "tenant": open("18:00-19:00 @Asia/Kolkata"),
	})
	now := day * 20_000
	l := line.New()
	var jobs []line.Job
	var ids []string
	for n := range 5 {
		ids = append(ids, id("j%d", n))
		jobs = append(jobs, line.Job{ID: ids[n], Lane: id("t%d|global:,tenant:t%d", n, n), Costs: []int64{1, 1},
			Latest: line.Never, Share: 1})
	}
	l.Foresee(now, settings, jobs)
	if starts := l.Play(t.Context(), now, settings, ids); len(starts) > 0 || l.Looks > 12_500 {
		t.Errorf("%d start, after %d looks at lanes; want none, after at most 12,500", len(starts), l.Looks)
	}
}
