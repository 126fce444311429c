package simulation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// fault is what happens to the world at an instant of a run, drawn before it begins.
type fault struct {
	at      time.Duration
	does    mischief
	lasts   time.Duration
	which   int // the index of the process or job
	process process
	scope   string
	key     string
	limits  []throttle.Limit
	mode    throttle.Mode
	step    time.Duration // by how much Redis' clock steps
	verb    string        // the script whose replies are lost
	replies int
}

type mischief int

const (
	crash    mischief = iota // a server dies; another begins later
	restart                  // a server is shut down in order; another begins
	outage                   // one process does not reach Redis for a while
	loss                     // one process loses replies to what was done
	flush                    // Redis forgets all scripts
	clock                    // Redis' clock steps
	pause                    // a scope key is paused
	limits                   // limits are set, and taken back
	mode                     // a mode is set, and taken back
	queue                    // the queue is paused
	deletion                 // a task is deleted by hand
	archive                  // a task is archived by hand
	nudge                    // a task is run by hand, before its time
	eviction                 // Redis loses the edges of calendars
	stall                    // a process is stopped for a while
)

var mischiefs = [...]string{
	"crash", "restart", "outage", "loss", "flush", "clock", "pause", "limits", "mode", "queue", "deletion",
	"archive", "nudge", "eviction", "stall",
}

func (m mischief) String() string { return mischiefs[m] }

func (f fault) String() string {
	return fmt.Sprintf("%s %s for %s: which %d, scope %s %q, limits %s, mode %s, step %s, %d replies to %s",
		f.at, f.does, f.lasts, f.which, f.scope, f.key, f.limits, f.mode, f.step, f.replies, f.verb)
}

// dequeue is the verb of the script by which asynq takes a task, whose replies may be lost too.
const dequeue = "dequeue"

// strikes reports whether tasks may run twice, or lose an attempt, because of the fault.
func (f fault) strikes() bool {
	switch f.does {
	case crash, restart, outage, stall:
		return true
	}
	return f.does == loss && f.verb == dequeue
}

// stepsBack reports whether Redis' clock is set back at some time.
func (p *plan) stepsBack() bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool { return f.does == clock && f.step < 0 })
}

// drawFaults draws some faults of some sorts: all sorts at once would hide each other.
func (p *plan) drawFaults(d dice) {
	most := map[mischief]int{crash: 2, restart: 2, outage: 2, loss: 12, flush: 2, clock: 2, pause: 3, limits: 3,
		mode: 2, queue: 1, deletion: 4, archive: 2, nudge: 6}
	back := false
	for does := crash; does <= nudge; does++ {
		if !d.chance(0.35) {
			continue
		}
		for range d.count(1, most[does]) {
			f := fault{
				at: d.between(0, p.span), does: does, lasts: d.between(100*time.Millisecond, 8*time.Second), which: d.IntN(1 << 16),
				process: drawProcess(d),
			}
			switch does {
			case clock:
				f.step = one(d, d.between(0, time.Second), d.between(0, time.Hour), -d.between(0, time.Second),
					-d.between(0, 29*time.Second))
				if f.step < 0 && back { // two steps back together may be too large for time to stand still
					f.step = -f.step
				}
				back = back || f.step < 0
			case loss:
				// go-redis repeats a command three times: its caller notices only the loss of four replies.
				f.verb, f.replies = one(d, "reserve", "reserve", "settle", "leave", "pull", "pull", dequeue), one(d, 1, 1, 2, 4, 5)
			case pause, limits, mode:
				p.drawControl(d, &f)
			}
			p.faults = append(p.faults, f)
		}
	}
}

// drawControl draws the settings of run time: windows no longer than the configured ones, so
// that all starts in them are known.
func (p *plan) drawControl(d dice, f *fault) {
	scope := one(d, p.scopes...)
	f.scope, f.mode = scope.Name, one(d, throttle.Enforce, throttle.Shadow, throttle.Off)
	if keys := p.keys(scope.Name); f.does == pause || d.chance(0.5) {
		f.key = one(d, keys...)
	}
	if f.does != limits || len(scope.Limits) == 0 {
		if f.does == limits {
			f.does = pause
			f.key = one(d, p.keys(scope.Name)...)
		}
		return
	}
	limit := one(d, scope.Limits...)
	limit.Units = one(d, 0, 1, d.Int64N(limit.Units)+1, 2*limit.Units)
	if d.chance(0.5) {
		limit.Window = d.between(limit.Window/4, limit.Window).Truncate(time.Millisecond)
	}
	limit.Precision = p.drawPrecision(d, limit.Window)
	f.limits = []throttle.Limit{limit}
}

// TestFaultsAreDrawn counts the faults of a thousand worlds, without running these: there are many of each sort.
func TestFaultsAreDrawn(t *testing.T) {
	t.Parallel()
	const worlds, least = 1000, 20
	drawn, jobs := make([]int, len(mischiefs)), 0
	for seed := range uint64(worlds) {
		p := draw(1+seed, 72*time.Second)
		jobs += len(p.jobs)
		for _, f := range p.faults {
			drawn[f.does]++
		}
	}
	t.Logf("%d worlds have %d jobs", worlds, jobs)
	for does, n := range drawn {
		t.Logf("%d × %s", n, mischief(does))
		if n < least {
			t.Errorf("%d × %s, want at least %d", n, mischief(does), least)
		}
	}
}
