package throttle_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// crowd is how much waits: lanes of as many jobs each, shared out among tenants.
type crowd struct{ tenants, lanes, jobs int }

func (c crowd) String() string {
	return fmt.Sprintf("%d jobs in %d lanes of %d tenants", c.lanes*c.jobs, c.lanes, c.tenants)
}

// mostCommands is what each call makes Redis do at most, whatever waits, with some
// room for the scripts to change: a sweep finds up to 100 lanes and bookings and
// sees to each lane; a pull books up to 32 jobs; a page of lines looks at 500
// entries or so.
var mostCommands = map[string]int{
	"Reserve a newcomer":      20,
	"Reserve who is in line":  20,
	"Reserve who is booked":   40,
	"Cancel who is in line":   40,
	"Pull":                    20 + 32*8,
	"Sweep, nothing due":      10,
	"Sweep, all lanes due":    10 + 100*40,
	"Sweep, bookings overdue": 10 + 100*40,
	"Lines":                   2 + 600,
}

// TestCallsAreBounded: what one call makes Redis do does not grow with what waits.
// It counts the commands that Redis runs, those of scripts included.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	for name, crowds := range map[string][2]crowd{
		"many tenants": {{5, 10, 10}, {50, 500, longtest.Of(10, 40)}},
		"one tenant":   {{1, 10, 10}, {1, 300, 10}},
		"one lane":     {{1, 1, 100}, {1, 1, longtest.Of(2000, 5000)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range crowds {
				for call, commands := range callsIn(t, c) {
					if commands > mostCommands[call] {
						t.Errorf("%s, with %s: %d commands, want at most %d", call, c, commands, mostCommands[call])
					}
				}
			}
		})
	}
}

// callsIn counts what each call costs where a crowd waits.
func callsIn(t *testing.T, c crowd) map[string]int {
	t.Helper()
	client := redistest.Start(t).Client(t)
	s := crowdIn(t, client, c)
	calls := make(map[string]int)
	count := func(call string, do func() error) {
		t.Helper()
		before := commandsRun(t, client)
		if err := do(); err != nil {
			t.Fatal(err)
		}
		calls[call] = max(calls[call], commandsRun(t, client)-before)
	}
	at := dawn.Add(time.Second)
	last := crowdJob(c, c.lanes-1, c.jobs-1)
	newcomer := crowdJob(c, c.lanes-1, c.jobs)
	count("Reserve a newcomer", func() error { _, err := s.Reserve(at, newcomer); return err })
	count("Reserve who is in line", func() error { _, err := s.Reserve(at, last); return err })
	count("Sweep, nothing due", func() error { _, err := s.Sweep(at); return err })
	count("Cancel who is in line", func() error { _, err := s.Cancel(at, last); return err })
	count("Lines", func() error { _, err := s.Lines(at, ""); return err })
	at = dawn.Add(9 * time.Second)
	var swept throttle.Swept
	count("Sweep, all lanes due", func() (err error) { swept, err = s.Sweep(at); return err })
	var slots []throttle.Reservation
	for next := swept.Next; next != "" && len(slots) < 200; {
		count("Pull", func() error {
			booked, after, err := s.Pull(at, next)
			slots, next = append(slots, booked...), after
			return err
		})
	}
	if len(slots) == 0 {
		t.Fatal("nobody is booked")
	}
	at = dawn.Add(11 * time.Second)
	count("Sweep, bookings overdue", func() error { _, err := s.Sweep(at); return err })
	count("Reserve who is booked", func() error { _, err := s.Reserve(at, slots[0].Job); return err })
	return calls
}

// crowdIn lets the crowd come. Each lane's domain has room for 40 jobs in 10 s, and
// they have all started at once; what waits has been pulled and set aside.
func crowdIn(t *testing.T, client *redis.Client, c crowd) *scripted {
	t.Helper()
	scopes := []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.Per(throttle.Unlimited, time.Second)}},
		{Name: "domain", Limits: []throttle.Limit{throttle.Per(40, 10*time.Second)}},
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(1_000_000, 10*time.Second)}},
	}
	s := nearly(t, client, scopes, throttle.Options{})
	for lane := range c.lanes {
		first := crowdJob(c, lane, -1)
		first.Weight = 40
		comes(t, s, 0, first, throttle.Granted)
		for i := range c.jobs {
			r := comes(t, s, 0, crowdJob(c, lane, i), throttle.Waiting)
			for next := r.Next; next != ""; {
				var err error
				if _, next, err = s.Pull(dawn, next); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return s
}

func crowdJob(c crowd, lane, i int) throttle.Job {
	return throttle.Job{
		ID: fmt.Sprintf("%d-%d", lane, i), Weight: 1,
		Keys: map[string]string{"tenant": fmt.Sprint("t", lane%c.tenants), "domain": fmt.Sprint("d", lane)},
	}
}

var commandCalls = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+),`)

// commandsRun is how many commands Redis has run, without those of clients that
// only call scripts or look.
func commandsRun(t *testing.T, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, match := range commandCalls.FindAllStringSubmatch(info, -1) {
		switch name, _, _ := strings.Cut(match[1], "|"); name {
		case "evalsha", "script", "info", "hello", "client", "config", "ping":
		default:
			calls, err := strconv.Atoi(match[2])
			if err != nil {
				t.Fatal(err)
			}
			total += calls
		}
	}
	return total
}
