package throttle_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// comers are the jobs of a backlog that never ends, and of tenants that come, start one job and go. The test
// sets the time. Each job asks again when its slot has come.
type comers struct {
	s       *scripted
	now     time.Time
	comes   map[string]time.Time // the slots of the booked jobs
	waits   map[string]throttle.Job
	granted int
}

func (c *comers) ask(t *testing.T, job throttle.Job) {
	t.Helper()
	r, err := c.s.Reserve(c.now, job)
	noted(t, err)
	c.waits[job.ID] = job
	delete(c.comes, job.ID)
	switch r.Outcome {
	case throttle.Granted:
		delete(c.waits, job.ID)
		c.granted++
	case throttle.Booked:
		c.comes[job.ID] = r.Start
	}
}

// tick lets the jobs come whose slots have come, and pulls.
func (c *comers) tick(t *testing.T) {
	t.Helper()
	c.now = c.now.Add(100 * time.Millisecond)
	for _, id := range slices.Sorted(maps.Keys(c.comes)) {
		if !c.comes[id].After(c.now) {
			c.ask(t, c.waits[id])
		}
	}
	pulled, err := c.s.Pull(c.now)
	noted(t, err)
	for _, r := range pulled.Booked {
		c.comes[r.Job.ID] = r.Start
	}
}

// stored is how many keys of one kind there are, how many elements the largest key has, and how many bytes the longest
// element.
type stored struct{ keys, elements, bytes int }

// storedBy reads what a throttle has in Redis, by the kinds of its keys.
func storedBy(t *testing.T, client *redis.Client, th *throttle.Throttle) map[string]stored {
	t.Helper()
	kinds := make(map[string]stored)
	for _, key := range keyNames(t, client, th) {
		_, end, _ := strings.Cut(key, "}:4:")
		kind, _, _ := strings.Cut(end, ":")
		of := kinds[kind]
		of.keys++
		elements, bytes := sizeOf(t, client, key)
		of.elements, of.bytes = max(of.elements, elements), max(of.bytes, bytes)
		kinds[kind] = of
	}
	return kinds
}

// sizeOf returns how many elements a key has, and the length of the longest.
func sizeOf(t *testing.T, client *redis.Client, key string) (elements, longest int) {
	t.Helper()
	var texts []string
	switch kind, err := client.Type(t.Context(), key).Result(); kind {
	case "string":
		texts = []string{client.Get(t.Context(), key).Val()}
	case "zset":
		texts = client.ZRange(t.Context(), key, 0, -1).Val()
	case "list":
		texts = client.LRange(t.Context(), key, 0, -1).Val()
	case "hash":
		for field, value := range client.HGetAll(t.Context(), key).Val() {
			texts = append(texts, field+value)
		}
	default:
		t.Fatalf("key %q is a %s: %v", key, kind, err)
	}
	for _, text := range texts {
		longest = max(longest, len(text))
	}
	return len(texts), longest
}

// mostStored returns how large each kind of key may be. jobs is the number of jobs that have not started, waiting the
// number of tenants with such a job, and counted the number of tenants with units in a window.
func mostStored(jobs, waiting, counted int) map[string]stored {
	const (
		entries = 64 + 2*16*32 // a line of text, and the spent and the booked units of a few sub-windows
		id      = 400          // the ID of a job with its costs and its lane
	)
	queues := waiting + 1 // one for each waiting tenant, and one for global
	return map[string]stored{
		"control": {1, 1, 1},
		"key":     {counted + waiting + 1, 1, 2*entries + jobs*2*32}, // with the bookings
		"ledger":  {2 * (counted + 1), 1, 2 * 1000 * 32},
		"jobs":    {1, jobs, id},
		"timers":  {1, jobs + 2*queues, id},
		"overdue": {1, jobs, id},
		"lane":    {waiting, jobs, id},
		"wait":    {queues, waiting, id},
		"lanes":   {2 * queues, waiting + 8, id},
		"tags":    {queues, 16 + 4*waiting, id},
		"finish":  {queues, 16 + 4*waiting, id},
		"claims":  {1, 2 * queues, id},           // a claim and a walk for each queue
		"shares":  {1, min(counted, 10_000), id}, // the shares that jobs of ten days have stated
		"pulled":  {1, 1, 16},
		"asked":   {1, 1, 64 * id},
	}
}

// TestWhatIsStoredIsBounded: tenants come, start one job and go while a backlog waits. However many tenants have
// come so far, the size of the data in Redis is bounded by the jobs that wait now and by the units in the windows.
func TestWhatIsStoredIsBounded(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		shares := make(map[string]int)
		for i := range 200 {
			shares[fmt.Sprint("t", i)] = 1 + i%3
		}
		scopes := tenantAndGlobal(throttle.PerMinute(60), throttle.PerSecond(6))
		th := newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second, Shares: shares})
		c := &comers{s: newScripted(th), now: dawn, comes: make(map[string]time.Time), waits: make(map[string]throttle.Job)}
		for i := range 300 {
			c.ask(t, throttle.Job{ID: fmt.Sprint("big", i), Weight: 1, Keys: of("big")})
		}
		for i := range 150 {
			c.ask(t, throttle.Job{ID: fmt.Sprint("new", i), Weight: 1 + int64(i%20/19)*5, Keys: of(fmt.Sprint("t", i))})
			for range 3 {
				c.tick(t)
			}
			if i%50 < 49 {
				continue
			}
			tenants := make(map[string]bool)
			for _, job := range c.waits {
				tenants[job.Keys["tenant"]] = true
			}
			if !tenants["big"] {
				t.Fatal("the backlog has gone")
			}
			most := mostStored(len(c.waits), len(tenants), i+2)
			for kind, is := range storedBy(t, client, th) {
				if bound, known := most[kind]; !known || is.keys > bound.keys || is.elements > bound.elements ||
					is.bytes > bound.bytes {
					t.Errorf(
						"after %d tenants, of which %d wait, with %d jobs: %s: %d keys, of %d elements, of %d "+
							"bytes at most; want at most %v",
						i+2, len(tenants), len(c.waits), kind, is.keys, is.elements, is.bytes, bound)
				}
			}
		}
	})
}
