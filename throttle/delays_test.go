package throttle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestJobsLaterThanTheMarginAreFound: within minutes Check reports that jobs begin later than a
// margin after their grants; an hour after the last of these jobs it does no longer.
func TestJobsLaterThanTheMarginAreFound(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(1000)}},
		{Name: "account", Limits: []throttle.Limit{throttle.PerMinute(500)}, Margin: 200 * time.Millisecond},
		{Name: "budget", Limits: []throttle.Limit{throttle.PerDay(5000)}, Margin: time.Second, Optional: true},
	}
	inBubble(t, scopes, nil, func(t *testing.T, th *throttle.Throttle) {
		n := 0
		begin := func(delay time.Duration) {
			t.Helper()
			n++
			r, err := th.Reserve(t.Context(), callOf(n))
			if err != nil {
				t.Fatal(err)
			}
			th.AwaitPublished() // with this answer, so without this job
			th.Driver().Started(r, time.Now().Add(-delay))
		}
		finds := func(when, want string) {
			t.Helper()
			findings, err := inspect.New(th).Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range findings {
				if f.What == "margin" {
					got += f.Severity + ": " + f.Text
				}
			}
			if (want == "") != (got == "") || !strings.Contains(got, want) {
				t.Errorf("%s: found %q, want one with %q", when, got, want)
			}
		}

		begin(200 * time.Millisecond)
		time.Sleep(20 * time.Minute)
		begin(0)
		finds("all within the margin", "")

		time.Sleep(2 * time.Minute)
		begin(340 * time.Millisecond)
		last := time.Now().Add(340 * time.Millisecond)
		begin(0)
		want := "began 1 of 3 jobs of scope account later than its margin of 200ms after their grants, the latest after 340ms"
		finds("late a moment ago", want)

		all, err := inspect.New(th).Processes(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("got %v, %v", all, err)
		}
		delays := map[string]throttle.StartDelay{
			"account": {Started: 3, Late: 1, Longest: 340 * time.Millisecond,
				LastLate: last.Truncate(time.Microsecond)}, "budget": {},
		}
		if diff := cmp.Diff(delays, all[0].Delays); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}

		time.Sleep(30 * time.Minute)
		begin(0)
		finds("half an hour later", "jobs of scope account later than its margin")
		time.Sleep(45 * time.Minute)
		begin(0)
		finds("more than an hour later", "")
	})
}

// TestNoMarginNoDelays: without a margin nothing is counted, nor published.
func TestNoMarginNoDelays(t *testing.T) {
	t.Parallel()
	inBubble(t, globalScope(throttle.PerMinute(10)), nil, func(t *testing.T, th *throttle.Throttle) {
		r, err := th.Reserve(t.Context(), throttle.Job{ID: "a", Weight: 1})
		if err != nil {
			t.Fatal(err)
		}
		th.Driver().Started(r, time.Now().Add(-time.Hour))
		th.AwaitPublished()
		if all, err := inspect.New(th).Processes(t.Context()); err != nil || len(all) != 1 || all[0].Delays != nil {
			t.Errorf("got %+v, %v", all, err)
		}
	})
}
