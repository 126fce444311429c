package lua_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestCallThatEndsLeavesBookings: a job comes when its claim is due, together with a booked job, and the steps of the
// call suffice for the first job only. The booking of the other stays as it was: when its grace is over, it is overdue.
func TestCallThatEndsLeavesBookings(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		now := int64(1_795_219_498_000_000)
		tenPer := func(length int64) line.Scope {
			return line.Scope{Mode: line.Enforce, Limits: []line.Limit{{Units: 10, Span: line.Window(length), Precision: 1}}}
		}
		s := &scripted{client: client, prefix: fmt.Sprintf("thr:{ended-call-%p}:4:", t),
			settings: line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9,
				Scopes: map[string]line.Scope{"domain": tenPer(10 * second), "tenant": tenPer(second)}}}
		job := func(id, key string, cost int64) line.Job {
			return line.Job{ID: id, Lane: "a|" + key, Costs: []int64{cost}, Latest: line.Never, Share: 1}
		}
		reserve := func(jobs ...line.Job) []string {
			_, answers, err := s.reserve(now, jobs)
			if err != nil {
				t.Fatal(err)
			}
			return answers
		}
		pull := func() []string {
			told, _, err := s.pull(now, 50, 200, 1)
			if err != nil {
				t.Fatal(err)
			}
			return told
		}
		claims, booked := job("claims", "domain:x", 10), job("booked", "tenant:y", 5)
		reserve(job("some", "domain:x", 6), claims)
		pull()
		if n := client.HLen(t.Context(), s.prefix+"claims").Val(); n == 0 {
			t.Fatal("the heavy job has no claim")
		}
		now += 19 * second / 2
		reserve(job("full", "tenant:y", 10))
		if answers := reserve(booked); answers[0][0] != '2' {
			t.Fatalf("%q is the answer, want a booking", answers)
		}
		now += second
		s.steps = 1
		if answers := reserve(claims, booked); len(answers) != 1 || answers[0][0] != '1' {
			t.Fatalf("%q are the answers, want one job granted", answers)
		}
		s.steps = 0
		if now += 6 * second; !slices.Contains(pull(), "booked") {
			t.Error("the job that was not decided is not overdue")
		}
	})
}
