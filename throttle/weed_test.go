package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// weeds is a throttle with a lane to be weeded: of a limit of two in 10 s for all, x
// has taken both at dawn, and five jobs of a and one of b stand in line since.
func weeds(t *testing.T, client *redis.Client) (s *scripted, ofA []throttle.Job) {
	t.Helper()
	s = nearly(t, client, tenantAndGlobal(throttle.Per(100, 10*time.Second), throttle.Limit{
		Units: 2, Window: 10 * time.Second, Precision: throttle.Exact,
	}), throttle.Options{})
	comes(t, s, 0, throttle.Job{ID: "x", Weight: 2, Keys: of("x")}, throttle.Granted)
	for i, id := range []string{"a0", "a:1\n\x00", "{a2}", "a3", "a4"} {
		job := throttle.Job{ID: id, Weight: int64(1 + i%2), Keys: of("a")}
		comes(t, s, 0, job, throttle.Waiting)
		ofA = append(ofA, throttle.Job{ID: id, Weight: job.Weight, Lane: "a|"})
	}
	comes(t, s, 0, throttle.Job{ID: "b0", Keys: of("b")}, throttle.Waiting)
	return s, ofA
}

// weed weeds a's lane, whose front and the lane that is next must be these then.
func (s *scripted) weed(t *testing.T, at time.Duration, gone []throttle.Job, aside time.Duration, front []throttle.Job, next throttle.Lane) {
	t.Helper()
	s.now = dawn.Add(at)
	got, after, err := s.throttle.Weed(t.Context(), "a|", gone, aside)
	if err != nil || after != next {
		t.Fatalf("at %s next is %q, %v; want %q", at, after, err, next)
	}
	if diff := cmp.Diff(front, got); diff != "" {
		t.Fatalf("at %s the front is (-want +got):\n%s", at, diff)
	}
}

// pulls pulls a lane, from which these jobs must be booked.
func (s *scripted) pulls(t *testing.T, at time.Duration, lane throttle.Lane, want ...string) {
	t.Helper()
	booked, _, err := s.Pull(dawn.Add(at), lane)
	var got []string
	for _, r := range booked {
		got = append(got, r.Job.ID)
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("at %s %s is pulled, %v (-want +got):\n%s", at, lane, err, diff)
	}
}

// swept is the lane that a sweep finds.
func (s *scripted) swept(t *testing.T, at time.Duration) throttle.Lane {
	t.Helper()
	swept, err := s.Sweep(dawn.Add(at))
	if err != nil {
		t.Fatal(err)
	}
	return swept.Next
}

// TestWeed: jobs that nobody will come for leave their lane, others have their turn
// meanwhile, and what is booked stays booked.
func TestWeed(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	onServers(t, func(t *testing.T, client *redis.Client) {
		s, ofA := weeds(t, client)
		s.weed(t, 9500*ms, nil, time.Second, ofA, "b|")
		s.pulls(t, 9500*ms, "a|")
		s.pulls(t, 9500*ms, "b|", "b0")
		s.weed(t, 9600*ms, ofA[:3], 500*ms, ofA[3:], "")
		if next := s.swept(t, 10400*ms); next != "" {
			t.Fatalf("a sweep finds %q, which was to be left alone for longer than was said last", next)
		}
		s.weed(t, 10400*ms, ofA[:2], 0, ofA[3:], "a|") // they are not there any more
		s.weed(t, 10400*ms, nil, time.Second, ofA[3:], "")
		want := map[string]throttle.Line{"a": {Key: "a", Share: 1, Jobs: 2, Units: 3}}
		if diff := cmp.Diff(want, allLines(t, s, 10400*ms, 1), butEnd); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		line := "thr:{" + s.throttle.Name() + "}:3:line"
		if got := client.HGet(t.Context(), line, "/a|").Val(); got != "2 3" {
			t.Fatalf("of the lane %q is kept, want 2 jobs of 3 units", got)
		}
		if next := s.swept(t, 11300*ms); next != "" {
			t.Fatalf("a sweep finds %q while the lane is left alone", next)
		}
		if next := s.swept(t, 11400*ms); next != "a|" {
			t.Fatalf("a sweep finds %q when its time has come, want the lane", next)
		}
		comes(t, s, 11400*ms, throttle.Job{ID: "b0", Keys: of("b")}, throttle.Granted)
		comes(t, s, 20400*ms, throttle.Job{ID: "a5", Keys: of("a")}, throttle.Waiting)

		// The booked one, the other one, and one that nobody knows.
		s.pulls(t, 20400*ms, "a|", "a3")
		s.weed(t, 20400*ms, append([]throttle.Job{{ID: "a9", Weight: 1, Lane: "a|"}}, ofA[3:]...), time.Second, nil, "")
		comes(t, s, 21400*ms, throttle.Job{ID: "a3", Weight: 2, Keys: of("a")}, throttle.Granted)

		// The last to come has just been planned until a second is over.
		a5 := []throttle.Job{{ID: "a5", Weight: 1, Lane: "a|"}}
		s.weed(t, 21399*ms, nil, time.Second, nil, "")
		s.weed(t, 21400*ms, nil, 0, a5, "a|")
		s.weed(t, 21400*ms, a5, time.Second, nil, "")
		if lines := allLines(t, s, 21400*ms, 1); len(lines) > 0 {
			t.Fatalf("when all are gone there is %v", lines)
		}
		if agenda := client.ZRange(t.Context(), strings.Replace(line, ":line", ":agenda", 1), 0, -1).Val(); slices.Contains(agenda, "/a|") {
			t.Fatalf("when all are gone their lane is to be looked at: %q", agenda)
		}
		comes(t, s, 30800*ms, throttle.Job{ID: "a6", Keys: of("a")}, throttle.Booked)
	})
}

// TestWeedRefuses: what is no lane, no job of it, too many jobs or no time.
func TestWeedRefuses(t *testing.T) {
	t.Parallel()
	th := newThrottle(t, miniClient(t), tenantAndGlobal(throttle.PerMinute(1), throttle.PerMinute(1)), nil)
	good := throttle.Job{ID: "1", Weight: 1, Lane: "a|"}
	with := func(change func(job *throttle.Job)) []throttle.Job {
		job := good
		change(&job)
		return []throttle.Job{good, job}
	}
	rows := map[string]struct {
		lane  throttle.Lane
		gone  []throttle.Job
		aside time.Duration
		field string
	}{
		"no lane":         {"a", nil, 0, "Lane"},
		"the empty lane":  {"", nil, 0, "Lane"},
		"a time past":     {"a|", nil, -1, "aside"},
		"too long a time": {"a|", nil, 300*time.Second + 1, "aside"},
		"too many jobs":   {"a|", make([]throttle.Job, 101), 0, "gone"},
		"no ID":           {"a|", with(func(j *throttle.Job) { j.ID = "" }), 0, "gone"},
		"no weight":       {"a|", with(func(j *throttle.Job) { j.Weight = 0 }), 0, "gone"},
		"another lane":    {"a|", with(func(j *throttle.Job) { j.Lane = "b|" }), 0, "gone"},
		"keys, no lane":   {"a|", with(func(j *throttle.Job) { j.Lane, j.Keys = "", of("a") }), 0, "gone"},
	}
	for name, row := range rows {
		_, _, err := th.Weed(t.Context(), row.lane, row.gone, row.aside)
		var wrong *throttle.InvalidJobError
		if !errors.As(err, &wrong) || wrong.Field != row.field {
			t.Errorf("%s: got %v, want an *InvalidJobError for %s", name, err, row.field)
		}
	}
}

// TestWeedPages: a long lane is weeded a hundred jobs at a time.
func TestWeedPages(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := nearly(t, client, tenantAndGlobal(throttle.PerMinute(100), throttle.PerMinute(1)), throttle.Options{})
		comes(t, s, 0, throttle.Job{ID: "first", Keys: of("a")}, throttle.Granted)
		const jobs = 250
		for i := range jobs {
			comes(t, s, 0, throttle.Job{ID: fmt.Sprint(i), Keys: of("a")}, throttle.Waiting)
		}
		s.now = dawn.Add(time.Minute)
		var told []string
		var gone []throttle.Job
		for {
			front, _, err := s.throttle.Weed(context.Background(), "a|", gone, time.Second)
			if err != nil || len(front) > 100 {
				t.Fatalf("%d jobs are told, %v; want at most 100", len(front), err)
			}
			if gone = front; len(front) == 0 {
				break
			}
			for _, job := range front {
				told = append(told, job.ID)
			}
		}
		if len(told) != jobs || told[0] != "0" || told[jobs-1] != fmt.Sprint(jobs-1) {
			t.Errorf("%d jobs were told, want %d in order", len(told), jobs)
		}
	})
}
