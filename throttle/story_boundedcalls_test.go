package throttle_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// crowd says how many jobs wait: lanes with this many jobs each, divided among tenants.
type crowd struct{ tenants, lanes, jobs int }

func (c crowd) String() string {
	return fmt.Sprintf("%d jobs in %d lanes of %d tenants", c.lanes*c.jobs, c.lanes, c.tenants)
}

// mostCommands is how many commands each call makes Redis run at most, whatever waits, with
// some room for the scripts to change: a pull looks at 200 lanes or jobs and books 50; a
// page of lines has 500 scope keys.
var mostCommands = map[string]int{
	"Reserve a newcomer":     40,
	"Reserve who is in line": 40,
	"Reserve who is booked":  40,
	"Leave of who waits":     40,
	"Pull, nothing due":      10,
	"Pull, all lanes due":    20 + 200*20,
	"Pull, bookings overdue": 20 + 200*20,
	"Lines":                  10 + 500*2,
	"Jobs of a lane":         10,
	"Usage":                  20,
}

// TestCallsAreBounded: the work of Redis for one call does not grow with the number of waiting
// jobs. The test counts the commands that Redis runs, the commands in scripts included.
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

// callsIn counts the commands of each call while a crowd waits.
func callsIn(t *testing.T, c crowd) map[string]int {
	t.Helper()
	client := redistest.Start(t).Client(t)
	s, last := crowdIn(t, client, c)
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
	count("Reserve a newcomer", func() error { _, err := s.Reserve(at, crowdJob(c, c.lanes-1, c.jobs)); return err })
	count("Reserve who is in line", func() error { _, err := s.Reserve(at, last.Job); return err })
	count("Usage", func() error { _, err := s.Usage(at, throttle.Global, ""); return err })
	count("Lines", func() error { _, err := s.Lines(at, ""); return err })
	count("Jobs of a lane", func() error {
		_, _, err := inspect.New(s.throttle).Jobs(t.Context(), last.Lane, "")
		return err
	})
	pull := func(call string, at time.Time) (pulled throttle.Pulled) {
		count(call, func() (err error) { pulled, err = s.Pull(at); return err })
		return pulled
	}
	pull("Pull, nothing due", at)
	count("Leave of who waits", func() error { _, err := s.Leave(at, []string{last.Job.ID}); return err })
	at = dawn.Add(9*time.Second + 500*time.Millisecond)
	var slots []throttle.Reservation
	for range 20 {
		slots = append(slots, pull("Pull, all lanes due", at).Booked...)
	}
	if len(slots) < 10 {
		t.Fatalf("%d jobs are booked", len(slots))
	}
	booked := crowdJob(c, 0, 0)
	booked.ID, booked.Keys = slots[0].Job.ID, slots[0].Job.Keys
	count("Reserve who is booked", func() error { _, err := s.Reserve(dawn.Add(11*time.Second), booked); return err })
	overdue := 0
	for range 200 {
		if overdue += len(pull("Pull, bookings overdue", dawn.Add(17*time.Second)).Overdue); overdue >= 9 {
			break
		}
	}
	if overdue < 9 {
		t.Errorf("%d bookings are overdue, of %d", overdue, len(slots))
	}
	return calls
}

// crowdIn lets the crowd come. Each lane's domain has room for 40 jobs in 10 s, and
// they have all started at once; each lane stands under its domain. It returns the job that
// came last.
func crowdIn(t *testing.T, client *redis.Client, c crowd) (*scripted, throttle.Reservation) {
	t.Helper()
	scopes := []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.Per(throttle.Unlimited, time.Second)}},
		{Name: "domain", Limits: []throttle.Limit{throttle.Per(40, 10*time.Second)}},
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(1_000_000, 10*time.Second)}},
	}
	s := nearly(t, client, scopes, throttle.Options{})
	var last throttle.Reservation
	for lane := range c.lanes {
		first := crowdJob(c, lane, -1)
		first.Weight = 40
		comes(t, s, 0, first, throttle.Granted)
		jobs := make([]throttle.Job, c.jobs)
		for i := range jobs {
			jobs[i] = crowdJob(c, lane, i)
		}
		for i, answer := range s.ReserveAll(dawn, jobs) {
			if last = answer.Reservation; answer.Err != nil || last.Outcome != throttle.Waiting {
				t.Fatalf("job %d of lane %d: %+v", i, lane, answer)
			}
		}
	}
	return s, last
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
