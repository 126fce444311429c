package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPropertyQuotaClockChanges: Redis' clock steps over edges, back and forth. In each period, at most the quota's
// units start; for each time that the clock comes back to the period from a later one, as many again may start.
// The scope also has hours, which close at the same edge: no job starts outside of them, whatever the clock does.
func TestPropertyQuotaClockChanges(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) { newQuotaClock(t, client).play(t) })
	})
}

// quotaClock is a history of jobs and steps of the clock, under a quota whose periods begin at 9 o'clock in UTC.
type quotaClock struct {
	quota   int64
	hours   string // empty: always open
	subject *scripted
	now     time.Time
	visits  []int // the periods that the clock was in, in order
	allowed map[int]int64
	started map[int]int64
	jobs    int
	waiting []throttle.Job
}

// periodAt is the number of the period in which an instant lies; dawn lies in period 0.
func periodAt(at time.Time) int { return int(at.Sub(dawn.Add(-23*time.Hour)) / day) }

func newQuotaClock(t *rapid.T, client *redis.Client) *quotaClock {
	c := &quotaClock{
		quota: rapid.SampledFrom([]int64{1, 3, 10}).Draw(t, "quota"), now: dawn.Add(10 * day),
		allowed: make(map[int]int64), started: make(map[int]int64),
	}
	limits := []throttle.Limit{fromNine(c.quota)}
	if rapid.Bool().Draw(t, "and a window") {
		limits = append(limits, throttle.Per(10, 10*time.Second))
	}
	if rapid.Bool().Draw(t, "and hours") {
		open := throttle.OpenHours("21:00-09:00, 09:01-10:00 @UTC")
		limits, c.hours = append(limits, open), open.Hours
	}
	c.subject = newScripted(newThrottle(t, client, globalScope(limits...), &throttle.Options{
		Lookahead: rapid.SampledFrom([]time.Duration{100 * time.Millisecond, 2 * time.Second, 50 * time.Hour}).Draw(
			t, "lookahead"),
		Grace: rapid.SampledFrom([]time.Duration{time.Millisecond, 5 * time.Second}).Draw(t, "grace"),
	}))
	c.visit()
	return c
}

// visit notes the period of the clock.
func (c *quotaClock) visit() {
	period := periodAt(c.now)
	if n := len(c.visits); n > 0 && c.visits[n-1] == period {
		return
	}
	for i := len(c.visits) - 1; i >= 0 && c.visits[i] != period; i-- {
		if c.visits[i] > period {
			c.allowed[period]++
			break
		}
	}
	c.visits = append(c.visits, period)
}

func (c *quotaClock) move(by time.Duration) {
	c.now = c.now.Add(by)
	c.visit()
}

func (c *quotaClock) play(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"arrive":  c.arrive,
		"arrive ": c.arrive,
		"again": func(t *rapid.T) {
			if len(c.waiting) == 0 {
				t.Skip("no job waits")
			}
			job := c.waiting[0]
			c.waiting = c.waiting[1:]
			c.ask(t, job)
		},
		"pull": func(t *rapid.T) { done(t, "Pull")(c.subject.Pull(c.now)) },
		"pass": func(t *rapid.T) {
			c.move(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, 10 * time.Minute, 7 * time.Hour,
				day}).Draw(t, "for"))
		},
		"to the edge": func(t *rapid.T) {
			edge := dawn.Add(time.Duration(periodAt(c.now))*day + time.Hour)
			c.move(edge.Add(rapid.SampledFrom([]time.Duration{-5 * time.Second, -time.Microsecond, 0,
				5 * time.Second}).Draw(t, "to")).Sub(c.now))
		},
		"step": func(t *rapid.T) {
			c.move(rapid.SampledFrom([]time.Duration{-time.Second, -10 * time.Second, -29 * time.Second, -31 * time.Second,
				-2 * time.Minute, -time.Hour, -30 * time.Hour, 10 * time.Second, time.Hour, 30 * time.Hour}).Draw(t, "by"))
		},
	})
}

func (c *quotaClock) arrive(t *rapid.T) {
	for range rapid.SampledFrom([]int{1, 3, 12}).Draw(t, "jobs") {
		c.jobs++
		c.ask(t, throttle.Job{ID: fmt.Sprint(c.jobs), Weight: rapid.SampledFrom([]int64{1, 1, c.quota}).Draw(t, "weight"),
			MaxWait: rapid.SampledFrom([]time.Duration{0, 0, 20 * time.Second}).Draw(t, "wait")})
	}
}

func (c *quotaClock) ask(t *rapid.T, job throttle.Job) {
	r, err := c.subject.Reserve(c.now, job)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != throttle.Granted {
		c.waiting = append(c.waiting, job)
		return
	}
	if c.hours != "" && !wallclock.IsOpen(c.hours, r.Start) {
		t.Fatalf("%s starts at %s, outside of %s", job.ID, r.Start, c.hours)
	}
	period := periodAt(r.Start)
	c.started[period] += job.Weight
	if most := c.quota * (1 + c.allowed[period]); c.started[period] > most {
		t.Fatalf("%s at %s: %d units in a period, to which the clock came back %d times", job.ID, r.Start,
			c.started[period], c.allowed[period])
	}
}
