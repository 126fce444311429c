package simulation_test

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seeds     = flag.Int("seeds", longtest.Of(8, 20), "how many seeds, one after the other")
	arrive    = flag.Float64("hours", base.Hours(), "for how long jobs arrive in each run, in virtual hours")
	scheduled = flag.Float64("scheduled", 0.3,
		"of the worlds that may have quotas and opening hours, the part that has them")
	advanced = flag.Float64("advanced", 0.3,
		"of the worlds in which processes may have advances, the part in which they have")
	on = flag.String("backend", "both",
		"redis (a real one), miniredis, or both: seeds alternate; without a redis-server, all use miniredis")
)

// keysLive is the shortest time to live of any key whose expiry would fail a run.
const keysLive = 25 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(longtest.Quiet(m))
}

// TestSimulation runs the worlds that are drawn from the seeds.
func TestSimulation(t *testing.T) {
	span := time.Duration(*arrive * float64(time.Hour)).Truncate(time.Microsecond)
	backend := *on
	if backend == "both" && !redistest.Available(t) {
		backend = "miniredis"
	}
	var pool servers
	if backend != "miniredis" {
		pool = startServers(t, runtime.GOMAXPROCS(0))
	}
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		own := backend
		if backend == "both" {
			own = [...]string{"redis", "miniredis"}[seed%2]
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p, began := draw(seed, span), time.Now()
			defer func() {
				if t.Failed() {
					t.Logf(
						"seed %d failed; once more:\n\tgo test ./internal/simulation -run TestSimulation -seed=%d "+
							"-seeds=1 -hours=%v -scheduled=%v -backend=%s\n%s",
						seed, seed, *arrive, *scheduled, own, p)
					if took := time.Since(began); own == "redis" && took > keysLive {
						t.Logf("it took %s of real time, in which keys of the redis-server may have expired", took)
					}
				}
			}()
			if own == "miniredis" {
				live(t, p, &memory{})
				return
			}
			server := <-pool
			defer func() { pool <- server }()
			live(t, p, &outside{server})
		})
	}
}
