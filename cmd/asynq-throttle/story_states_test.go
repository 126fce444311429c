package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// reserveMany reserves so many jobs with an ID that begins with the name, and these keys.
func reserveMany(t *testing.T, th *throttle.Throttle, many int, name string, keys map[string]string) {
	t.Helper()
	for i := range many {
		job := throttle.Job{ID: fmt.Sprintf("%s-%d", name, i), Weight: 1, Keys: keys}
		if _, err := th.Reserve(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
}

// wants checks what a command line prints, and that it succeeds.
func wants(t *testing.T, client *redis.Client, line, text string) {
	t.Helper()
	r := asked(t, client.Options().Addr, strings.Fields(line)...)
	if r.status != 0 || !strings.Contains(r.out, text) {
		t.Errorf("%s: exit status %d, %s%swant %q", line, r.status, r.out, r.errs, text)
	}
}

// TestJobInABoundedLine: a job is known by its ID also where the lines of its processes have a bound.
func TestJobInABoundedLine(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		bounded := slices.Clone(scopes)
		bounded[1].MaxWaiting.Jobs = 9
		th := opened(t, client, bounded, 1)
		reserveMany(t, th, 5, "mail", map[string]string{"tenant": "acme"})
		wants(t, client, "job smtp mail-4", "tenant acme has a limit of 2/1h and 3 jobs in line; expected to start")
		wants(t, client, "job smtp mail-4", "2 of the 3 jobs of its lane before it")
	})
}

// TestVeryLongKey: of a key of which Redis has only the hash each verb that looks says the same as of others.
func TestVeryLongKey(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := opened(t, client, scopes, 1)
		long := strings.Repeat("long ", 100)
		reserveMany(t, th, 3, "mail", map[string]string{"tenant": long})
		for _, line := range []string{"lines smtp", "lines smtp --by flow", "lines smtp --by lane", "status smtp",
			"watch smtp --times 1"} {
			wants(t, client, line, "2/1h, 2 used, 0 booked")
		}
	})
}

// TestNoProcessIsAlive: where no process is left, nothing is said to start.
func TestNoProcessIsAlive(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := world(t, client)
		if err := th.Driver().End(t.Context()); err != nil {
			t.Fatal(err)
		}
		wants(t, client, "status smtp", ": 0 processes, nothing starts until one runs\n")
		wants(t, client, "job smtp acm-4",
			"No process of the throttle is alive, so nothing starts.\nStart a worker, or look at its log.\n")
		wants(t, client, "job smtp acm-4", "; 7 are in line in all\n")
	})
}

// TestTaskThatWillNotStart: of a job in line whose task was deleted, or has a deadline before its turn, no start is
// expected.
func TestTaskThatWillNotStart(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		wants(t, client, "job smtp asynq:mails/acm-3/0",
			"Asynq has no such task: it was deleted, or the tasks are in another Redis.\nThe workers take it out of line")
		in := asynq.NewInspectorFromRedisClient(client)
		if err := in.DeleteTask("mails", "acm-4"); err != nil {
			t.Fatal(err)
		}
		late := asynq.NewTask("mail:send", nil, asynq.Queue("mails"), asynq.TaskID("acm-4"), asynq.ProcessIn(time.Minute),
			asynq.Deadline(time.Now().Add(time.Minute)))
		if _, err := asynq.NewClientFromRedisClient(client).Enqueue(late); err != nil {
			t.Fatal(err)
		}
		r := asked(t, client.Options().Addr, "job", "smtp", "acm-4")
		if !strings.Contains(r.out, "tenant acme has a limit of 2/1h and 3 jobs in line, and its deadline ") ||
			!strings.Contains(r.out, " is before its turn at ") || strings.Contains(r.out, "expected to start") {
			t.Errorf("%+v", r)
		}
	})
}

// TestJobHeavierThanALimit: a job in line that takes more units than a limit which was set since says so, and until
// when.
func TestJobHeavierThanALimit(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := opened(t, client, scopes, 1)
		reserveMany(t, th, 2, "mail", map[string]string{"tenant": "acme"})
		heavy := throttle.Job{ID: "heavy", Weight: 2, Keys: map[string]string{"tenant": "acme"}}
		if _, err := th.Reserve(t.Context(), heavy); err != nil {
			t.Fatal(err)
		}
		const why = "It takes 2 units of tenant acme, more than its limit 1/1h"
		wants(t, client, "limits set smtp tenant acme 1/1h", "undo")
		wants(t, client, "job smtp heavy", why+"; never, unless limits change.\nA higher limit of tenant acme would help.\n")
		wants(t, client, "limits set smtp tenant acme 1/1h --for 20m", "undo")
		wants(t, client, "job smtp heavy", why+", until ")
	})
}

// TestRunningTimesThatAreNotKnown: a start under a running limit is the earliest where it is not known how long jobs
// run.
func TestRunningTimesThatAreNotKnown(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		running := append(slices.Clone(scopes[:1]), throttle.Scope{Name: "host",
			Limits: []throttle.Limit{throttle.Running(2)}})
		th := opened(t, client, running, 1)
		reserveMany(t, th, 4, "page", map[string]string{"host": "a"})
		wants(t, client, "status smtp", "under host a: 2/running, 2 used, 0 booked, room by ")
		wants(t, client, "job smtp page-3", " at the earliest: how long jobs run is not known.\n")
		wants(t, client, "job smtp page-3 --json", `"earliest": true`)
		wants(t, client, "forecast smtp --key host=a",
			"at the earliest: how long jobs run under a running limit is not known")
		wants(t, client, "forecast smtp --key host=a --json", `"earliest": true`)
	})
}

// TestShadowDelaysNothing: where limits and pauses are in shadow or off, no verb says that they hold a job back.
func TestShadowDelaysNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		wants(t, client, "mode smtp tenant shadow", "undo")
		wants(t, client, "usage smtp tenant acme", "  shadow: nothing is delayed  ")
		wants(t, client, "limits get smtp tenant acme", "  shadow: nothing is delayed  ")
		wants(t, client, "usage smtp domain gmail.example", "paused until ")
		wants(t, client, "status smtp", "under tenant acme: its turn\n")
		wants(t, client, "lines smtp --by flow", "  its turn  –\n")
		wants(t, client, "job smtp acm-4", "  shadow: nothing is delayed\n")
		wants(t, client, "job smtp acm-4 --json", `"mode": "shadow"`)
		wants(t, client, "limits set smtp tenant acme 0/1h", "undo")
		wants(t, client, "job smtp acm-4", "Its turn has not come; expected to start ")
		wants(t, client, "mode smtp domain off", "undo")
		wants(t, client, "usage smtp domain gmail.example", "  off: nothing is delayed  ")
		wants(t, client, "job smtp asynq:mails/hoo-0/0", "Its turn has not come; expected to start ")
		wants(t, client, "pause smtp domain web.example --for 1h",
			"not paused\noff: nothing is delayed until the mode is enforce\nundo: ")
		wants(t, client, "mode smtp global shadow", "undo")
		wants(t, client, "pause smtp global --for 1h", "\nshadow: nothing is delayed until the mode is enforce\n")
		wants(t, client, "status smtp", "60 %, shadow: nothing is delayed\n")
	})
}

// TestFlowThatWaitsForSeveral: the row of a flow whose jobs wait for several scope keys does not name one for all.
func TestFlowThatWaitsForSeveral(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := opened(t, client, scopes, 1)
		for _, domain := range []string{"a", "b", "c"} {
			if _, err := inspect.New(th).Pause(t.Context(), "domain", domain, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			reserveMany(t, th, 1, domain, map[string]string{"tenant": "acme", "domain": domain})
		}
		wants(t, client, "lines smtp --by flow", "acme  domain a and 2 others  3 ")
	})
}

// TestRightsThatLack: the error for a user without a right names the page with the rules. With asynq's keys the user
// who looks may ask about tasks.
func TestRightsThatLack(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	world(t, client)
	allow := func(rules string) {
		t.Helper()
		args := append([]any{"ACL", "SETUSER", "viewer"}, anys(strings.Fields(rules))...)
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow("on >s resetkeys ~thr:* resetchannels -@all +ping +hello +auth +info +scan +evalsha +script|load +exists +get " +
		"+getrange +hget +hgetall +hlen +hmget +hscan +lindex +llen +lrange +mget +time +zcard +zrange +zrangebyscore " +
		"+zscan +zscore")
	addr := "viewer:s@" + client.Options().Addr
	for _, line := range []string{"job smtp lone", "pause smtp domain x --for 1h"} {
		r := asked(t, addr, strings.Fields(line)...)
		if r.status != failed || !strings.Contains(r.errs, "docs/operations.md, “Permissions”") {
			t.Errorf("%s: %+v", line, r)
		}
	}
	allow("~asynq:* +smembers +sismember +eval")
	if r := asked(t, addr, "job", "smtp", "lone"); r.status != 0 {
		t.Errorf("%+v", r)
	}
}

// TestTimesAreOnRedisClock: where the clock of this machine differs, it says how far times are by Redis' clock.
func TestTimesAreOnRedisClock(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.SetTime(time.Now().Add(48 * time.Hour))
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	opened(t, client, scopes, 1)
	wants(t, client, "pause smtp domain a --for 1h", "pause of domain a: until ")
	wants(t, client, "limits set smtp tenant a 5/1h --for 1h", "limits of tenant a: 5/1h until ")
	wants(t, client, "mode smtp tenant shadow --for 1h", "mode of all keys of tenant: shadow until ")
	for _, line := range []string{"limits get smtp", "mode smtp", "changes smtp"} {
		wants(t, client, line, "(in 1h0m)")
	}
	if r := asked(t, client.Options().Addr, "ls"); !strings.Contains(r.out, "(now)") &&
		!strings.Contains(r.out, "s ago)") {
		t.Errorf("%+v", r)
	}
}

func anys(texts []string) []any {
	list := make([]any, len(texts))
	for i, text := range texts {
		list[i] = text
	}
	return list
}
