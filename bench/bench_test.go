package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// benchWaiting is how many jobs are many here.
const benchWaiting = 1000

// BenchmarkDecision is the table's rows one by one: for profiles, and for
// benchstat. The time per op is the round trip; what it took on the server
// stands beside it.
func BenchmarkDecision(b *testing.B) {
	for _, row := range rows(benchWaiting) {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			costs := make(map[string]*cost)
			if err := measureRow(b.Context(), redistest.Shared(b).Addr, row, b.N, costs); err != nil {
				b.Fatal(err)
			}
			c := costs[row.name]
			b.ReportMetric(1000*c.p50(), "ns/op")
			b.ReportMetric(c.script(), "script-µs/op")
			b.ReportMetric(c.cpu(), "server-µs/op")
		})
	}
}

// BenchmarkAsynq is tasks per second with the middleware and without it.
func BenchmarkAsynq(b *testing.B) {
	for name, shaped := range map[string]bool{"without": false, "with": true} {
		b.Run(name, func(b *testing.B) {
			perSecond, err := tasksPerSecond(b.Context(), redistest.Shared(b).Addr, b.N, shaped)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(1e9/perSecond, "ns/op")
			b.ReportMetric(perSecond, "tasks/s")
		})
	}
}

// Every row decides what it says it does, and all of it ends up in the table.
func TestTable(t *testing.T) {
	redistest.Shared(t) // skips or fails where there is no Redis
	var out strings.Builder
	if err := run(t.Context(), &out, options{calls: 20, rounds: 1, tasks: 20, waiting: benchWaiting, plans: 250}); err != nil {
		t.Fatalf("%v, after:\n%s", err, out.String())
	}
	for _, row := range rows(benchWaiting) {
		if !strings.Contains(out.String(), row.name) {
			t.Errorf("no row %q in:\n%s", row.name, out.String())
		}
	}
	if want := "entries in the largest ledger: "; !strings.Contains(out.String(), want) {
		t.Errorf("no line with %q in:\n%s", want, out.String())
	}
	for _, goal := range goals {
		if !strings.Contains(out.String(), goal.row+": "+goal.what) {
			t.Errorf("no goal %q, %s in:\n%s", goal.row, goal.what, out.String())
		}
	}
}

// The comparison of enqueueing stands alone where it is asked for.
func TestOnlyPlan(t *testing.T) {
	redistest.Shared(t) // skips or fails where there is no Redis
	var out strings.Builder
	if err := run(t.Context(), &out, options{calls: 1, rounds: 1, waiting: 1, plans: 250, only: onlyPlan}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "enqueueing 250 tasks: ") || strings.Contains(got, yardstick) {
		t.Errorf("got:\n%s", got)
	}
}

// A goal that is missed is an error where that is asked for.
func TestStrict(t *testing.T) {
	redistest.Shared(t) // skips or fails where there is no Redis
	before := goals
	t.Cleanup(func() { goals = before })
	goals = []goal{{rowReserve, "server CPU", 0, cpuRatio}} // which nothing reaches
	for _, strict := range []bool{false, true} {
		var out strings.Builder
		err := run(t.Context(), &out, options{calls: 20, rounds: 1, waiting: 1, plans: 1, only: rowReserve, strict: strict})
		if errors.Is(err, errMissed) != strict || err != nil && !strict || !strings.Contains(out.String(), "MISSED") {
			t.Errorf("strict %t: got %v, after:\n%s", strict, err, out.String())
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	all := []row{{name: "a"}, {name: yardstick}, {name: "ab"}}
	var got []string
	for _, row := range choose(all, "b") {
		got = append(got, row.name)
	}
	if want := yardstick + " ab"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScriptMicros(t *testing.T) {
	t.Parallel()
	const stats = "# Commandstats\r\ncmdstat_hset:calls=9,usec=9\r\n" +
		"cmdstat_evalsha:calls=3,usec=41,usec_per_call=13.67,rejected_calls=0,failed_calls=0\r\n"
	if got, err := scriptMicros(stats); err != nil || got != 41 {
		t.Errorf("got %v, %v; want 41", got, err)
	}
	if got, err := scriptMicros("# Commandstats\r\n"); err == nil {
		t.Errorf("no EVALSHA: got %v, want an error", got)
	}
}

func TestCostIsThatOfTheBestRound(t *testing.T) {
	t.Parallel()
	var c cost
	for _, round := range []int{3, 1, 2} {
		m := &meter{scriptMicros: 200 * float64(round), cpuMicros: 400 * float64(round)}
		for i := range 200 {
			m.roundTrips = append(m.roundTrips, time.Duration(round*(200-i))*time.Millisecond)
		}
		c.add(m)
	}
	got := [4]float64{c.script(), c.cpu(), c.p50(), c.p99()}
	if want := [4]float64{1, 2, 101_000, 199_000}; got != want {
		t.Errorf("script, CPU, p50, p99: got %v, want %v", got, want)
	}
}
