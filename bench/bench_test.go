package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestMain(m *testing.M) {
	spinIfChild()
	os.Exit(longtest.Quiet(m).Run())
}

// small is the smallest size at which each section still does its work.
var small = options{calls: 40, rounds: 1, tasks: 40, jobs: 60, plans: 300, waiting: 1000}

// Every section prints its rows and a verdict on each goal. The sections in real time, which
// are the longest, run with LONG=1.
func TestSections(t *testing.T) {
	redistest.Shared(t) // skips or fails where there is no Redis
	for _, row := range []struct {
		section string
		long    bool
		want    []string
	}{
		{"decisions", false, []string{yardstick, "sorted-set log", rowReserve, rowTwoLimits, "16 goroutines, awake",
			"1 goroutine, idle"}},
		{"advance", false, []string{"windows of 1h0m0s, 16 processes", "server CPU of a busy lane's job"}},
		{"ledgers", true, []string{"refused, the exact ledger is full", "granted, entries leave"}},
		{"sizes", false, []string{"1,000,000 a month", "redis_rate, asked once", "bytes of a scope key"}},
		{"waiting", false, steps},
		{"memory", false, []string{"a waiting job takes", "bytes of a quiet tenant"}},
		{"scale", false, []string{"planned by EnqueueAll", "the limit, behind a backlog", "4 nodes",
			"slots are moved meanwhile", "a slot with 1000 waiting jobs"}},
		{"tasks", false, []string{"tasks/s of bare asynq"}},
		{"plan", false, []string{"planned by one EnqueueAll"}},
		{"drain", false, []string{"sub-windows of a hundredth", "exact", "asynq's recipe",
			"the fullest window to its limit"}},
		{"running", false, []string{"10/running", "a place is used again", "part of the places"}},
		{"longest", true, []string{"a limit raised", "200 tenants with a claim each", "longest call"}},
		{"shaped", true, []string{"jobs/s"}},
		{"hours", true, []string{"before the edge", "starts each"}},
	} {
		t.Run(row.section, func(t *testing.T) {
			if row.long && os.Getenv("LONG") == "" {
				t.Skip("it takes a while; LONG=1 runs it")
			}
			o := small
			o.only = row.section
			var out strings.Builder
			if err := run(t.Context(), &out, o); err != nil {
				t.Fatalf("%v, after:\n%s", err, out.String())
			}
			for _, want := range row.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
			if !strings.Contains(out.String(), "reached ") && !strings.Contains(out.String(), "MISSED ") {
				t.Errorf("no verdict in:\n%s", out.String())
			}
		})
	}
}

// Each setting runs without an error also with few waiting jobs.
func TestSettings(t *testing.T) {
	server := redistest.Shared(t)
	for _, setting := range settings {
		if setting.name != "200 tenants with a claim each" && os.Getenv("LONG") == "" {
			continue
		}
		if err := setting.run(t.Context(), &bench{options: small}, server.Client(t)); err != nil {
			t.Errorf("%s: %v", setting.name, err)
		}
	}
}

// A campaign is planned in full calls, pulled and redeemed, and its jobs take memory.
func TestCampaign(t *testing.T) {
	redistest.Shared(t)
	is, err := campaign{jobs: 640, tenants: 10}.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if is.peak < 100*640 || is.peak > 1e7 {
		t.Errorf("640 jobs take %.0f bytes", is.peak)
	}
	if calls := is.planned.calls * 640; calls != 10 {
		t.Errorf("640 jobs were planned in %v calls, want 10", calls)
	}
	for name, stage := range map[string]stage{"planned": is.planned, "pulled": is.pulled, "redeemed": is.redeemed} {
		if stage.cpu <= 0 || slices.Min(stage.took) < 0 || stage.calls < 10.0/640 || stage.calls > 1 {
			t.Errorf("%s: got %+v", name, stage)
		}
	}
}

// In each situation of a crowd, jobs ask and start if new jobs come, and only then. A busy machine may need longer.
func TestCrowd(t *testing.T) {
	redistest.Shared(t)
	for _, of := range situations {
		for length := 800 * time.Millisecond; ; length *= 2 {
			is, err := crowdIn(t.Context(), 3, of, length)
			if err != nil {
				t.Fatalf("%s: %v", of.name, err)
			}
			if of.perSecond == 0 && (is.starts > 0 || is.reserves > 0) {
				t.Errorf("%s: got %+v", of.name, is)
			}
			if of.perSecond == 0 || is.starts > 0 && is.reserves > 0 {
				break
			}
			if length > 20*time.Second {
				t.Fatalf("%s: in %s: got %+v", of.name, length, is)
			}
		}
	}
}

// Each node has two throttles, and a throttle that is moved is on the next node.
func TestThrottlesOnNodes(t *testing.T) {
	redistest.Shared(t)
	err := withCluster(t.Context(), func(c *cluster) error {
		names, err := c.names(t.Context())
		if err != nil {
			return err
		}
		if _, err := throttlesOn(t.Context(), c.client, names); err != nil {
			return err
		}
		lies := func(i, node int) {
			keys, err := c.nodes[node].control.Keys(t.Context(), "thr:{"+names[i]+"}*").Result()
			if err != nil || len(keys) == 0 {
				t.Errorf("throttle %d has no keys on node %d: %v", i, node, err)
			}
		}
		for i := range names {
			lies(i, i%clusterNodes)
		}
		for to := 1; to <= clusterNodes; to++ {
			if _, err := c.move(t.Context(), names[0]); err != nil {
				return err
			}
			lies(0, to%clusterNodes)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// BenchmarkDecision makes one decision of each limiter: for profiles, and for benchstat. The time per op is the round
// trip.
func BenchmarkDecision(b *testing.B) {
	bench := &bench{options: small}
	s, err := startServer(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	rows, end, err := bench.limiters(s)
	b.Cleanup(end)
	if err != nil {
		b.Fatal(err)
	}
	for _, row := range rows {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			is, err := s.during(b.Context(), func() error {
				_, err := together(b.N, 1, func(i int) error { return row.decide(b.Context(), i) })
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(micros(is.scripts)/float64(b.N), "script-µs/op")
			b.ReportMetric(micros(is.cpu)/float64(b.N), "server-µs/op")
		})
	}
}

// A missed goal is an error if a flag asks for that; an unknown section is always an error.
func TestStrict(t *testing.T) {
	before := sections
	t.Cleanup(func() { sections = before })
	sections = []section{{name: "one", about: "that misses its goal", run: func(_ context.Context, b *bench) error {
		b.most("what", 2, 1)
		return nil
	}}}
	for _, strict := range []bool{false, true} {
		o := small
		o.strict = strict
		var out strings.Builder
		if err := run(t.Context(), &out, o); errors.Is(err, errMissed) != strict || err != nil && !strict ||
			!strings.Contains(out.String(), "MISSED  what: 2, at most 1") {
			t.Errorf("strict %t: got %v, after:\n%s", strict, err, out.String())
		}
	}
	var missing bench
	missing.out = new(strings.Builder)
	missing.most("a", 2, 1)
	missing.least("b", 1, 2)
	missing.most("c", 1, 1)
	missing.least("d", 1, 1)
	if missing.missed != 2 {
		t.Errorf("%d goals are missed, want 2", missing.missed)
	}
	o := small
	o.only = "nothing of the kind"
	if err := run(t.Context(), new(strings.Builder), o); err == nil || errors.Is(err, errMissed) {
		t.Errorf("got %v", err)
	}
	sections[0].alone = true
	if err := run(t.Context(), new(strings.Builder), small); err == nil {
		t.Error("a section ran that no flag selects")
	}
	o = small
	o.calls = 0
	if err := run(t.Context(), new(strings.Builder), o); err == nil {
		t.Error("no calls were taken")
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	const stats = "# Commandstats\r\ncmdstat_hset:calls=9,usec=9\r\ncmdstat_config|resetstat:calls=1,usec=9\r\n" +
		"cmdstat_info:calls=2,usec=5\r\n" +
		"cmdstat_evalsha:calls=3,usec=41,usec_per_call=13.67,rejected_calls=0,failed_calls=0\r\n"
	var got spent
	if err := got.count(stats); err != nil || got.evalshas != 3 || got.commands != 12 ||
		got.scripts != 41*time.Microsecond {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestWorst(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	starts := []started{{at, "a"}, {at.Add(time.Second), "a"}, {at.Add(1500 * time.Millisecond), "b"},
		{at.Add(2 * time.Second), "a"}}
	one := limits{throttle.Per(1, 2*time.Second)}
	four := limits{throttle.Per(4, 2*time.Second)}
	if got := worst(starts, one, four); got != 2 { // the third of a is a whole window after the first
		t.Errorf("of a tenant: got %v, want 2", got)
	}
	if got := worst(starts, four, one); got != 3 {
		t.Errorf("of all: got %v, want 3", got)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for want, of := range map[float64][]float64{0: nil, 2: {3, 2, 1}, 2.5: {4, 1, 3, 2}} {
		if got := median(of); got != want {
			t.Errorf("median of %v: got %v, want %v", of, got, want)
		}
	}
}
