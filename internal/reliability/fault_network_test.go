package reliability_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
)

const faultyNetwork = "the network before " + ownRedis

// TestFaultyNetwork strikes between the throttle and its Redis. Tasks must be put back because
// Redis could not decide: otherwise the fault has not struck.
func TestFaultyNetwork(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		cases, done string
		length      time.Duration
		begin, end  func(*redistest.Proxy)
		failure     []string // why tasks are put back; none: Redis decides for all
	}{
		"F02 half-open": {
			"F2", "half-open: connections stay, nothing passes, what was sent arrives at the end", 3 * time.Second,
			(*redistest.Proxy).Stall, (*redistest.Proxy).Unstall, []string{"timeout"},
		},
		"F03 refused": {
			"F3", "connections cut and refused", 3 * time.Second,
			// The client dials again and again, mostly until the time is up.
			(*redistest.Proxy).Refuse, (*redistest.Proxy).Accept, []string{"other", "timeout"},
		},
		"F02 slow": {
			"F2", "each reply 100 ms late", 3 * time.Second,
			func(p *redistest.Proxy) { p.Delay(100 * time.Millisecond) }, func(p *redistest.Proxy) { p.Delay(0) }, nil,
		},
		"F02 slower than the timeout": {
			"F2", "each reply 400 ms late, the throttle waits 250 ms", 3 * time.Second,
			func(p *redistest.Proxy) { p.Delay(400 * time.Millisecond) }, func(p *redistest.Proxy) { p.Delay(0) },
			[]string{"timeout"},
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "F03 refused" {
				longtest.Only(t, ofItsClass)
			}
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr)
			d := apartBy(t, server, quotas,
				func() redis.UniversalClient { return clientOf(t, &redis.Options{Addr: proxy.Addr}) })
			f := d.strike(func() { row.begin(proxy) }, row.length, func() { row.end(proxy) })
			d.finish(f, reliability.Row{Cases: row.cases, Done: row.done, Servers: faultyNetwork}, allowance{})
			if row.failure != nil && d.putBackFor(row.failure...) == 0 {
				timely(t, "no task was put back for %v: this test has tested nothing", row.failure)
			}
		})
	}
}

// TestRepliesLost_F01_F21 cuts connections after the script has run, for replies drawn at
// random. The client of one process asks again by itself, the client of the other does not.
func TestRepliesLost_F01_F21(t *testing.T) {
	t.Parallel()
	const seed, most, least, among = 1, 200, 20, 10
	random := rand.New(rand.NewPCG(seed, seed))
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	retries := []int{0, -1} // the default, and never
	d := apartBy(t, server, quotas, func() redis.UniversalClient {
		client := clientOf(t, &redis.Options{Addr: proxy.Addr, MaxRetries: retries[0]})
		retries = append(retries[1:], retries[0])
		return client
	})
	lost := 0
	f := d.strike(func() {
		for lost < least || lost < most && d.begun() < (windows-2)*int(units) {
			proxy.DropReply("evalsha", 1+random.IntN(among))
			lost++
			d.until("a reply is lost", time.Minute, func() bool {
				if d.jobs-d.begun() < int(units) { // a slow machine must not run out of jobs
					d.enqueue(int(units))
				}
				return proxy.Dropped() == lost
			})
		}
	}, 0, nil)
	d.finish(f, reliability.Row{Cases: "F1, F21",
		Done: fmt.Sprintf("%d replies of decisions lost at random, connections cut", lost), Servers: faultyNetwork},
		allowance{})
}

func clientOf(t *testing.T, opts *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
