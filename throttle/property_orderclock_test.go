package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPropertyOrderOverSteps: jobs of one lane start in the order in which they came, however often they ask again, and
// though Redis' clock steps. The order is known from the calls alone.
func TestPropertyOrderOverSteps(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { newSequence(t, client).history() })
	})
}

// sequence brings jobs, numbered in the order in which they come.
type sequence struct {
	t             *rapid.T
	subject       *scripted
	now           time.Time
	came, started int
}

func newSequence(t *rapid.T, client *redis.Client) *sequence {
	return &sequence{t: t, now: dawn, subject: newScripted(newThrottle(t, client,
		globalScope(throttle.Per(1, 10*time.Second)), &throttle.Options{Lookahead: time.Second, Timeout: patient}))}
}

func (s *sequence) history() {
	for range rapid.IntRange(10, 50).Draw(s.t, "steps") {
		switch rapid.IntRange(0, 5).Draw(s.t, "what") {
		case 0, 1:
			s.came++
			s.ask(s.came - 1)
		case 2:
			if s.started < s.came {
				s.ask(rapid.IntRange(s.started, s.came-1).Draw(s.t, "again"))
			}
		case 3:
			s.pull() // a process does so every half second
			s.now = s.now.Add(rapid.SampledFrom([]time.Duration{
				-2 * time.Hour, -31 * time.Second, -time.Second, -time.Microsecond, time.Hour,
			}).Draw(s.t, "step"))
		default:
			s.now = s.now.Add(time.Duration(rapid.Int64Range(0, 15_000_000).Draw(s.t, "for")) * time.Microsecond)
			s.pull()
		}
	}
	const behind = 3 // times 10 s: while the clock is up to 30 s behind the last start, nothing leaves the window
	for range 2*s.came + behind {
		s.now = s.now.Add(10 * time.Second)
		s.pull()
	}
	if s.started != s.came {
		s.t.Fatalf("%d of %d jobs have started", s.started, s.came)
	}
}

// ask asks for a job. A booked job comes at once to its slot.
func (s *sequence) ask(n int) {
	r, err := s.subject.Reserve(s.now, throttle.Job{ID: fmt.Sprint(n), Weight: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	switch r.Outcome {
	case throttle.Booked:
		s.now = r.Start
		s.ask(n)
	case throttle.Granted:
		if n != s.started {
			s.t.Fatalf("job %d started before job %d", n, s.started)
		}
		s.started++
	}
}

func (s *sequence) pull() {
	found, err := s.subject.Pull(s.now)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range found.Booked {
		var n int
		if _, err := fmt.Sscan(r.Job.ID, &n); err != nil {
			s.t.Fatal(err)
		}
		s.now = r.Start
		s.ask(n)
	}
}
