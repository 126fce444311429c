package throttle_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// benchKeys are the tenants that a benchmark's jobs belong to, in turn.
var benchKeys = map[string]int{"one key": 1, "1000 keys": 1000}

// roomy limits never hold a job back. Under tight limits almost every job is booked.
var (
	roomy = tenantAndGlobal(throttle.PerMinute(1<<40), throttle.PerMinute(1<<40))
	tight = tenantAndGlobal(throttle.PerMinute(100), throttle.PerMinute(100))
)

// BenchmarkModel measures the algorithm without Redis. The model forgets nothing by itself, so
// the benchmark begins with a new model every 256 jobs.
func BenchmarkModel(b *testing.B) {
	for name, keys := range benchKeys {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			now := time.UnixMicro(1_800_000_000_000_000)
			var model *throttletest.Model
			for i := 0; b.Loop(); i++ {
				if i%256 == 0 {
					model = throttletest.NewModel(roomy, throttle.Options{Lookahead: maxWindow})
				}
				now = now.Add(time.Millisecond)
				if _, err := model.Reserve(now, benchJob(i, keys)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReserve is one decision with room, round trip included, for one caller
// and for many.
func BenchmarkReserve(b *testing.B) {
	for name, keys := range benchKeys {
		b.Run(name, func(b *testing.B) {
			th := benchThrottle(b, roomy)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := th.Reserve(b.Context(), benchJob(i, keys)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+", parallel", func(b *testing.B) {
			th := benchThrottle(b, roomy)
			b.ReportAllocs()
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := th.Reserve(context.Background(), benchJob(int(n.Add(1)), keys)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkReserveQuota is a decision with room under a window alone, and beside the window a window of a day, a quota,
// a ramp or hours: script-µs is the script's part, by the server's own figures.
func BenchmarkReserveQuota(b *testing.B) {
	minute := throttle.PerMinute(1 << 40)
	for _, of := range []struct {
		name   string
		limits []throttle.Limit
	}{
		{"a window", []throttle.Limit{minute}},
		{"two windows", []throttle.Limit{minute, throttle.PerDay(1 << 40)}},
		{"a window and a quota", []throttle.Limit{minute, throttle.PerCalendarDay(1<<40, "Europe/Paris")}},
		{"a window and a ramp", []throttle.Limit{minute,
			throttle.Ramp("1000000000 2000000000/day from 2020-01-01 @Europe/Paris")}},
		{"a window and hours", []throttle.Limit{minute,
			throttle.OpenHours("Mon-Fri 00:00-24:00, Sat-Sun 00:00-24:00, except 2030-12-25 @Europe/Paris")}},
	} {
		b.Run(of.name, func(b *testing.B) {
			client := redistest.Start(b).Client(b)
			th := newThrottle(b, client, []throttle.Scope{{Name: "tenant", Limits: of.limits}},
				&throttle.Options{Timeout: time.Minute, Lookahead: time.Second})
			for i := 0; b.Loop(); i++ {
				if _, err := th.Reserve(b.Context(), benchJob(i, 1)); err != nil {
					b.Fatal(err)
				}
			}
			calls, took := scriptsOf(b, client)
			b.ReportMetric(took/calls, "script-µs/op")
		})
	}
}

// BenchmarkBook is a decision without room, with 100 jobs booked before it: a new
// slot each time, given back so that there are always 100.
func BenchmarkBook(b *testing.B) {
	th := crowded(b)
	b.ReportAllocs()
	for i := 200; b.Loop(); i++ {
		got, err := th.Reserve(b.Context(), benchJob(i, 1))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := th.Cancel(b.Context(), got.Job); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLook measures calls that change nothing, on ledgers with 200 entries.
func BenchmarkLook(b *testing.B) {
	th := crowded(b)
	for name, look := range map[string]func(ctx context.Context) error{
		"Peek":  func(ctx context.Context) error { _, err := th.Peek(ctx, benchJob(1, 1)); return err },
		"Usage": func(ctx context.Context) error { _, err := inspect.New(th).Usage(ctx, "tenant", "0"); return err },
		"Count": func(ctx context.Context) error {
			_, err := inspect.New(th).Count(ctx, "tenant", "0", time.Minute, 0)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := look(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPull measures a pull that finds nothing to do, the least that a script costs: script-µs
// is the script's part, by the server's own figures.
func BenchmarkPull(b *testing.B) {
	server := redistest.Start(b)
	client := server.Client(b)
	driver := newThrottle(b, client, tight, &throttle.Options{Timeout: time.Minute}).Driver()
	for b.Loop() {
		if _, err := driver.Pull(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	calls, took := scriptsOf(b, client)
	b.ReportMetric(took/calls, "script-µs/op")
}

// BenchmarkHandOver measures the cost of a job that waits for its place under a running limit: a running
// job ends, so the next job is booked; that job starts; and a new job joins the line of a thousand.
// With a thousand places, occupied one after the other, the ledger is long. script-µs is measured as
// in BenchmarkPull.
func BenchmarkHandOver(b *testing.B) {
	for _, places := range []int{10, 1000} {
		b.Run(fmt.Sprint("places ", places), func(b *testing.B) {
			client := redistest.Start(b).Client(b)
			limit := throttle.Limit{Units: int64(places), Running: true, Lease: 5 * time.Second}
			scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{limit}}, {Name: "tenant"}}
			th := newThrottle(b, client, scopes, &throttle.Options{Lookahead: time.Second, Timeout: time.Minute})
			asked := 0
			ask := func(id string) throttle.Reservation {
				asked++
				return reserve(b, th, throttle.Job{ID: id, Weight: 1, Keys: of("acme"), Nonce: "n" + strconv.Itoa(asked)})
			}
			var running []throttle.Reservation
			for i := range places + 1000 {
				if r := ask(strconv.Itoa(i)); r.Outcome == throttle.Granted {
					running = append(running, r)
					time.Sleep(time.Millisecond) // so that each job counts in a sub-window of its own
				}
			}
			calls, took := scriptsOf(b, client)
			for b.Loop() {
				pulled, err := th.Driver().Pull(b.Context(), running[0])
				if err != nil || len(pulled.Booked) != 1 {
					b.Fatal(pulled, err)
				}
				running = append(running[1:], ask(pulled.Booked[0].Job.ID))
				ask(strconv.Itoa(asked))
			}
			after, spent := scriptsOf(b, client)
			b.ReportMetric((spent-took)/float64(b.N), "script-µs/op")
			b.ReportMetric((after-calls)/float64(b.N), "calls/op")
		})
	}
}

// scriptsOf returns how many calls of scripts a server has had, and how long they took, in us.
func scriptsOf(b *testing.B, client *redis.Client) (calls, took float64) {
	b.Helper()
	stats, err := client.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, stats, _ = strings.Cut(stats, "cmdstat_evalsha:")
	if _, err := fmt.Sscanf(strings.ReplaceAll(stats, ",", " "), "calls=%g usec=%g", &calls, &took); err != nil {
		b.Fatal(err)
	}
	return calls, took
}

// BenchmarkParseLimit reads and prints a limit.
func BenchmarkParseLimit(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		limit, err := throttle.ParseLimit("50000/7d@1h")
		if err != nil || limit.String() == "" {
			b.Fatal(err)
		}
	}
}

// crowded has 100 units used and 100 jobs booked, of weight 1 each.
func crowded(b *testing.B) *throttle.Throttle {
	b.Helper()
	th := benchThrottle(b, tight)
	for i := range 200 {
		job := benchJob(i, 1)
		job.Weight = 1
		if _, err := th.Reserve(b.Context(), job); err != nil {
			b.Fatal(err)
		}
	}
	return th
}

func benchThrottle(b *testing.B, scopes []throttle.Scope) *throttle.Throttle {
	b.Helper()
	client := redis.NewClient(redistest.Shared(b).Options())
	b.Cleanup(func() { _ = client.Close() })
	return newThrottle(b, client, scopes, &throttle.Options{Timeout: time.Minute})
}

func benchJob(i, keys int) throttle.Job {
	return throttle.Job{ID: fmt.Sprint("job", i), Weight: int64(1 + i%10), Keys: of(strconv.Itoa(i % keys)),
		Nonce: "n" + strconv.Itoa(i)}
}
