package line_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// history is a world whose settings and events are drawn.
type history struct {
	*world
	r      *rand.Rand
	flows  int
	kinds  int   // of jobs: which scope keys they have
	lowest int   // priority of jobs
	heavy  int64 // the largest weight, but for those that need a whole window
	whole  bool  // some jobs need the whole of a limit
	load   int   // most jobs that come at once
	longs  int64 // until when jobs come
	room   map[string]int64
	turn   map[string]int64
	worst  [2]int64
	paused map[string]int64
	drawn  int
}

// drawLimits draws up to most limits: wider windows hold more.
func drawLimits(r *rand.Rand, most int, least int64) []line.Limit {
	windows := []int64{second, 2 * second, 10 * second, minute, hour, day}
	var limits []line.Limit
	units := int64(0)
	for i, n := r.IntN(len(windows)), r.IntN(most); i < len(windows) && n >= 0; n-- {
		units += least + r.Int64N(1+20*least)
		limit := per(units, windows[i])
		if r.IntN(3) == 0 {
			limit.Precision = max(1, windows[i]/(1+r.Int64N(30)))
		}
		limits = append(limits, limit)
		i += 1 + r.IntN(3)
	}
	return limits
}

func drawHistory(t testing.TB, seed uint64) *history {
	r := rand.New(rand.NewPCG(seed, 1))
	least := []int64{1, 5, 20}[r.IntN(3)]
	settings := settingsOf(map[string][]line.Limit{"global": drawLimits(r, 2, 2*least),
		"tenant": drawLimits(r, 3, least), "domain": drawLimits(r, 2, least)})
	settings.Lookahead = []int64{second, second, second / 5, 5 * second}[r.IntN(4)]
	settings.Grace = []int64{5 * second, second, 20 * second}[r.IntN(3)]
	h := &history{
		world: newWorld(t, settings), r: r, flows: 1 + r.IntN(8), kinds: 1 + r.IntN(4), lowest: r.IntN(3),
		heavy: 1 + r.Int64N(20), whole: r.IntN(2) == 0,
		load: 1 + r.IntN(12), longs: int64(1+r.IntN(5)) * minute,
		room: make(map[string]int64), turn: make(map[string]int64), paused: make(map[string]int64),
	}
	h.strict = true
	h.maxWait = []int64{1200 * milli, 0, 200 * milli}[r.IntN(3)]
	rarely := func() bool { return r.IntN(20) == 0 }
	if r.IntN(2) == 0 {
		h.late = func(*worldJob) int64 {
			if rarely() {
				return r.Int64N(30 * second)
			}
			return r.Int64N(2 * second)
		}
	}
	if r.IntN(2) == 0 {
		h.gone = func(*worldJob) bool { return rarely() }
	}
	if r.IntN(2) == 0 {
		h.actual = func(*worldJob) int64 {
			if r.IntN(4) == 0 {
				return r.Int64N(5)
			}
			return -1
		}
	}
	return h
}

// drawJob draws a job that its limits can hold.
func (h *history) drawJob() line.Job {
	h.drawn++
	flow := id("t%d", h.r.IntN(h.flows))
	keys := []string{"global:", "tenant:" + flow}
	switch h.r.IntN(h.kinds) {
	case 1:
		keys = []string{id("domain:d%d", h.r.IntN(2)), "global:", "tenant:" + flow}
	case 2:
		keys = []string{"tenant:" + flow}
	case 3:
		keys = []string{"domain:d0", "domain:d1", "tenant:" + flow}
	}
	cost := int64(1)
	switch {
	case h.whole && h.r.IntN(40) == 0:
		cost = line.Never
	case h.r.IntN(3) == 0:
		cost = 1 + h.r.Int64N(h.heavy)
	}
	same := h.r.IntN(4) > 0
	costs := make([]int64, len(keys))
	for i, key := range keys {
		costs[i] = cost
		if !same && h.r.IntN(2) == 0 {
			costs[i] = 1
		}
		scope, _, _ := strings.Cut(key, ":")
		for _, limit := range h.settings.Scopes[scope].Limits {
			costs[i] = min(costs[i], limit.Units)
		}
		costs[i] = max(1, min(costs[i], 1000))
	}
	share := shareOf(flow)
	if priority := h.r.IntN(h.lowest + 1); priority > 0 {
		flow += id("#%d", priority)
	}
	return line.Job{ID: id("j%d", h.drawn), Lane: flow + "|" + strings.Join(keys, ","), Costs: costs, Share: share}
}

// shareOf is a flow's share.
func shareOf(flow string) int64 { return 1 + int64(flow[len(flow)-1])%3 }

// name draws a scope key.
func (h *history) name() string {
	names := []string{"global:", "domain:d0", "domain:d1", id("tenant:t%d", h.r.IntN(h.flows))}
	return names[h.r.IntN(len(names))]
}

// disturb pauses or resumes a scope key, changes its limits, or takes a job out of line.
func (h *history) disturb() {
	name := h.name()
	switch h.r.IntN(5) {
	case 0:
		h.paused[name] = h.now + h.r.Int64N(40*second)
		h.line.Pause(h.now, h.settings, name, h.paused[name])
	case 1:
		h.line.Pause(h.now, h.settings, name, 0)
	case 2:
		limits := append([]line.Limit(nil), h.limits(name)...)
		for i := range limits {
			limits[i].Units = h.r.Int64N(2 + 2*limits[i].Units)
		}
		h.set(name, limits)
	case 3:
		h.set(name, nil)
	case 4:
		for _, first := range h.line.Heads() {
			if h.r.IntN(4) == 0 {
				h.leave(first.ID)
			}
		}
	}
}

// calm ends all pauses and takes all changed limits back.
func (h *history) calm() {
	for name := range h.paused {
		h.line.Pause(h.now, h.settings, name, 0)
	}
	for _, name := range slices.Sorted(maps.Keys(h.own)) {
		h.set(name, nil)
	}
}

// look notes for how long the first jobs of lanes have had room, promises counted: those
// of weight 1, and those whose turn it is.
func (h *history) look() {
	h.t.Helper()
	heads := h.line.Heads()
	seen := make(map[string]bool)
	for _, first := range heads {
		if !h.line.HasRoom(h.now, h.settings, first.Lane, first.Costs) {
			continue
		}
		h.since(h.room, seen, "r"+first.ID, first.Lane, 0, 20*second)
		if h.line.HasTurn(h.now, h.settings, first.Lane) {
			h.since(h.turn, seen, "t"+first.ID, first.Lane, 1, h.settings.Lookahead+second)
		}
	}
	for _, known := range []map[string]int64{h.room, h.turn} {
		for id := range known {
			if !seen[id] {
				delete(known, id)
			}
		}
	}
}

func (h *history) since(known map[string]int64, seen map[string]bool, id, lane string, which int, most int64) {
	seen[id] = true
	if _, is := known[id]; !is {
		known[id] = h.now
	}
	wait := h.now - known[id]
	h.worst[which] = max(h.worst[which], wait)
	if wait > most {
		h.t.Fatalf("%s of lane %s waits for %d us with room, more than %d\n%s", id, lane, wait, most, h.line.Dump(h.now))
	}
}

// TestRandomHistories: whatever limits, weights, backlogs, pauses, changed limits, refunds,
// late and missing jobs are drawn,
//   - no window ever holds more than its limit, by the starts alone,
//   - a job of any weight at the head of its lane does not wait 20 s with room in all its
//     limits, promises counted,
//   - a job that has room and whose turn it is does not wait longer than lookahead + 1 s,
//   - all that waits starts in the end, however heavy.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	var worst [2]int64
	for seed := range uint64(longtest.Of(8, 400)) {
		h := drawHistory(t, seed)
		t.Run(id("seed %d", seed), func(t *testing.T) {
			h.t = t
			disturbed := h.r.IntN(2) == 0
			until := h.now + h.longs
			for h.now < until {
				h.run(h.now + h.r.Int64N(second))
				h.look()
				for range h.r.IntN(h.load) {
					h.bring(h.drawJob())
				}
				if disturbed && h.r.IntN(20) == 0 {
					h.disturb()
				}
			}
			h.calm()
			for range 600 {
				h.run(h.now + 100*milli)
				h.look()
			}
			h.drain()
			worst[0], worst[1] = max(worst[0], h.worst[0]), max(worst[1], h.worst[1])
		})
	}
	t.Logf("the longest wait with room: of a job at the head of its lane %.2f s, of one with its turn %.2f s",
		float64(worst[0])/1e6, float64(worst[1])/1e6)
}
