package dashboard

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// board is what one look has found. Nothing in it changes but drawn, which is safe for use
// by many goroutines.
type board struct {
	taken time.Time // when the look began, by the local clock
	done  time.Time // when it ended: it is shown for a second from then
	err   error     // why the rest is as it was before

	throttle *inspect.Inspector
	now      time.Time // Redis' clock
	process  processes
	line     waiting
	keys     map[scopeKey]*standing
	rows     []scopeKey // those that the overview shows

	started rate // units under Global
	putBack rate // tasks, by this process
	stats   worker.Stats

	drawn *drawn
}

// copy is a board that may be made another of.
func (b *board) copy() *board {
	next := *b
	next.keys, next.drawn = maps.Clone(b.keys), new(drawn)
	if next.keys == nil {
		next.keys = make(map[scopeKey]*standing)
	}
	return &next
}

// lacks tells that there is more to be read of a scope key for its own page.
func (b *board) lacks(key scopeKey) bool {
	s := b.keys[key]
	return s == nil || s.history.due(s.usage, b.taken)
}

// processes is what seldom changes.
type processes struct {
	read    time.Time // by the local clock; zero: not yet
	all     []throttle.Process
	load    view.Load
	sample  view.Sample // from which load is measured next
	changes []inspect.Change
	sets    view.Sets
	noted   []inspect.Backlog
}

// scopes are those of the newest process.
func (p processes) scopes() []throttle.Scope {
	if len(p.all) == 0 {
		return nil
	}
	return p.all[0].Scopes
}

func (p processes) hasScope(name string) bool {
	for _, s := range p.scopes() {
		if s.Name == name {
			return true
		}
	}
	return false
}

// sameAs tells that the newest process is configured as it was.
func (p processes) sameAs(before processes) bool {
	return len(p.all) > 0 && len(before.all) > 0 && len(p.all[0].Differences(before.all[0])) == 0
}

// fair is the fair scope, empty if there is none.
func (p processes) fair() string {
	if len(p.all) == 0 {
		return ""
	}
	return p.all[0].FairScope
}

// waiting is what waits in line.
type waiting struct {
	read  time.Time     // by the local clock; zero: not yet
	took  time.Duration // to read it
	at    time.Time     // on Redis' clock
	lanes []inspect.Lane
	// The places of lanes, by the scope key that has no room and by the flow.
	byKey  map[scopeKey][]int
	byFlow map[string][]int
	flows  view.Waiting          // by flow, the oldest first
	under  map[scopeKey]view.Row // by the scope key that has no room
	most   []scopeKey            // those with the most jobs
	// many is true where more waits than is read: there are scope keys with their flows
	// then, no jobs and no lanes.
	many bool
}

// standing is how one scope key stands.
type standing struct {
	usage   inspect.Usage
	err     error     // something foreign is kept there
	full    []float64 // how full its fullest limit was, one for each look
	history history
}

// history is what started under a scope key, over its longest window.
type history struct {
	read  time.Time // by the local clock; zero: not yet
	limit throttle.Limit
	bars  []int64 // the oldest first
}

// rate is how much came about per second, at the last looks.
type rate struct {
	known bool
	last  []float64
}

// mostPoints is how many looks are kept to be drawn.
const mostPoints = 60

// with is a list with one more point at its end. Lists that were handed out stay as they are.
func with(points []float64, point float64) []float64 {
	points = points[max(0, len(points)-mostPoints+1):]
	return append(points[:len(points):len(points)], point)
}

func (k scopeKey) compare(other scopeKey) int {
	return cmp.Or(cmp.Compare(k.Scope, other.Scope), cmp.Compare(k.Key, other.Key))
}

// drawn are the parts of pages that were made of a board, by what was asked for: each is
// made once for all who look.
type drawn struct {
	mu    sync.Mutex
	parts map[string][]byte
}

func (d *drawn) part(name string, draw func() ([]byte, error)) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if part, is := d.parts[name]; is {
		return part, nil
	}
	part, err := draw()
	if err != nil {
		return nil, err
	}
	if d.parts == nil {
		d.parts = make(map[string][]byte)
	}
	d.parts[name] = part
	return part, nil
}
