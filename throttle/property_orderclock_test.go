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
		rapid.Check(t, func(t *rapid.T) { newComer(t, client).history() })
	})
}

// comer brings jobs, numbered in the order in which they come.
type comer struct {
	t             *rapid.T
	subject       *scripted
	now           time.Time
	came, started int
}

func newComer(t *rapid.T, client *redis.Client) *comer {
	return &comer{t: t, now: dawn, subject: newScripted(newThrottle(t, client,
		globalScope(throttle.Per(1, 10*time.Second)), &throttle.Options{Lookahead: time.Second, Timeout: patient}))}
}

func (c *comer) history() {
	for range rapid.IntRange(10, 50).Draw(c.t, "steps") {
		switch rapid.IntRange(0, 5).Draw(c.t, "what") {
		case 0, 1:
			c.came++
			c.ask(c.came - 1)
		case 2:
			if c.started < c.came {
				c.ask(rapid.IntRange(c.started, c.came-1).Draw(c.t, "again"))
			}
		case 3:
			c.pull() // a process does so every half second
			c.now = c.now.Add(rapid.SampledFrom([]time.Duration{
				-2 * time.Hour, -31 * time.Second, -time.Second, -time.Microsecond, time.Hour,
			}).Draw(c.t, "step"))
		default:
			c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 15_000_000).Draw(c.t, "for")) * time.Microsecond)
			c.pull()
		}
	}
	for range 2 * c.came {
		c.now = c.now.Add(10 * time.Second)
		c.pull()
	}
	if c.started != c.came {
		c.t.Fatalf("%d of %d jobs have started", c.started, c.came)
	}
}

// ask asks for a job. A booked job comes at once to its slot.
func (c *comer) ask(n int) {
	r, err := c.subject.Reserve(c.now, throttle.Job{ID: fmt.Sprint(n), Weight: 1})
	if err != nil {
		c.t.Fatal(err)
	}
	switch r.Outcome {
	case throttle.Booked:
		c.now = r.Start
		c.ask(n)
	case throttle.Granted:
		if n != c.started {
			c.t.Fatalf("job %d started before job %d", n, c.started)
		}
		c.started++
	}
}

func (c *comer) pull() {
	found, err := c.subject.Pull(c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range found.Booked {
		var n int
		if _, err := fmt.Sscan(r.Job.ID, &n); err != nil {
			c.t.Fatal(err)
		}
		c.now = r.Start
		c.ask(n)
	}
}
