package line_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// TestHeavyJobWithRoomStarts: heavy jobs wait for a day, of many flows or in many lanes of one, and
// a lighter one that came after them had no room either. When there is room for it, it starts,
// however many wait before it that have none.
func TestHeavyJobWithRoomStarts(t *testing.T) {
	t.Parallel()
	for name, lane := range map[string]func(i int) (flow string, keys []string){
		"flows": func(i int) (string, []string) { return id("t%d", i), []string{"global:"} },
		"lanes of one flow": func(i int) (string, []string) {
			return "a", []string{id("domain:d%d", i), "global:"}
		},
	} {
		for _, heavy := range longtest.Of([]int{3, 20}, []int{3, 5, 20, 200}) {
			w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(100, day)}, "domain": {per(100, minute)}}))
			bring := func(i int, cost int64) *worldJob {
				flow, keys := lane(i)
				return w.arrive(id("j%d", i), flow, keys, cost)
			}
			began := w.now
			for i, cost := range []int64{1, 10, 89} {
				w.now = began + int64(i)*hour
				bring(-1-i, cost)
			}
			for i := range heavy {
				bring(i, 50)
			}
			light := bring(heavy, 2)
			w.run(began + 26*hour)
			if wait := light.started - began - 25*hour; light.started == 0 || wait > 2*second {
				t.Errorf(
					"%d heavy jobs, %s: a job of weight 2 started %.1f s after there was room for 11 units (0: not "+
						"within an hour)", heavy, name, float64(max(0, wait))/1e6)
			}
			w.check()
		}
	}
}

// TestEveryWeightStarts: jobs of all weights, up to the whole of a large limit, arrive without end in
// many lanes. Whatever it weighs, the first job of a lane does not wait while it has room in all its
// limits, promises counted, for longer than the lookahead and some
// pulls; and the heaviest start too, within some windows. The test knows only starts,
// and where there is room.
func TestEveryWeightStarts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(longtest.Of(4, 100)) {
		r := rand.New(rand.NewPCG(seed, 2))
		units := []int64{100, 1000, 20_000}[seed%3]
		w := newWorld(t,
			settingsOf(map[string][]line.Limit{"global": {per(units, 10*second)}, "domain": {per(units/2, 7*second)}}))
		began, flows, n := w.now, 1+r.IntN(12), 0
		since, most := make(map[string]int64), int64(0)
		for w.now < began+4*minute {
			w.run(w.now + 100*milli)
			room := make(map[string]int64)
			for _, first := range w.line.Heads() {
				if w.line.HasRoom(w.now, w.settings, first.Lane, first.Costs) {
					if room[first.ID] = since[first.ID]; room[first.ID] == 0 {
						room[first.ID] = w.now
					}
					most = max(most, w.now-room[first.ID])
				}
			}
			since = room
			if w.now > began+2*minute || r.IntN(2) == 0 {
				continue
			}
			n++
			cost := int64(math.Exp(r.Float64() * math.Log(float64(units/2))))
			lane, costs := id("t%d|global:", r.IntN(flows)), []int64{cost}
			if r.IntN(2) == 0 {
				lane, costs = strings.Replace(lane, "|", id("|domain:%d,", r.IntN(4)), 1), []int64{cost, cost}
			} else if r.IntN(20) == 0 {
				costs[0] = units
			}
			w.bring(line.Job{ID: id("j%d", n), Lane: lane, Costs: costs, Share: 1})
		}
		w.drain()
		w.check()
		longest := int64(0)
		for _, j := range w.jobs {
			longest = max(longest, j.started-j.arrived)
		}
		t.Logf(
			"seed %d: %d jobs of up to %d units, %d flows: the longest wait with room %.2f s, in all %.0f s; put "+
				"back %.2f", seed, n, units, flows, float64(most)/1e6, float64(longest)/1e6, float64(w.putBacks)/float64(n))
		if most > w.settings.Lookahead+second {
			t.Errorf("seed %d: a job waited for %.1f s with room", seed, float64(most)/1e6)
		}
	}
}
