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

// board is what one reading of Redis returned. Only its field drawn changes afterwards; drawn is
// safe for use by many goroutines.
type board struct {
	taken time.Time // when the reading began, by the local clock
	done  time.Time // when the reading ended: pages show the board for a second from then
	err   error     // why this reading failed; the rest is then from the reading before

	throttle *inspect.Inspector
	now      time.Time // Redis' clock
	process  processes
	line     waiting
	keys     map[scopeKey]*standing
	rows     []scopeKey // the scope keys that the overview shows

	started rate // units under Global
	putBack rate // tasks, by this process
	stats   worker.Stats

	drawn *drawn
}

// copy returns a copy of the board that the caller may change.
func (b *board) copy() *board {
	next := *b
	next.keys, next.drawn = maps.Clone(b.keys), new(drawn)
	if next.keys == nil {
		next.keys = make(map[scopeKey]*standing)
	}
	return &next
}

// lacks reports whether the page of a scope key needs more than the board has.
func (b *board) lacks(key scopeKey) bool {
	s := b.keys[key]
	return s == nil || s.history.due(s.usage, b.taken)
}

// processes is the configuration and state that seldom change.
type processes struct {
	read    time.Time // by the local clock; zero: not yet
	all     []throttle.Process
	load    view.Load
	sample  view.Sample // from which load is measured next
	changes []inspect.Change
	sets    view.Sets
	noted   []inspect.Backlog
}

// scopes returns the scopes of the newest process.
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

// sameAs reports whether the newest process still has the same configuration.
func (p processes) sameAs(before processes) bool {
	return len(p.all) > 0 && len(before.all) > 0 && len(p.all[0].Differences(before.all[0])) == 0
}

// fair returns the name of the fair scope, empty if there is none.
func (p processes) fair() string {
	if len(p.all) == 0 {
		return ""
	}
	return p.all[0].FairScope
}

// waiting is all the jobs that wait in line.
type waiting struct {
	read  time.Time     // by the local clock; zero: not yet
	took  time.Duration // to read it
	at    time.Time     // on Redis' clock
	lanes []inspect.Lane
	// The indexes of lanes, by the scope key that has no room and by the flow.
	byKey  map[scopeKey][]int
	byFlow map[string][]int
	flows  view.Waiting          // by flow, the oldest first
	under  map[scopeKey]view.Row // by the scope key that has no room
	most   []scopeKey            // the scope keys with the most jobs
	// many is true where more jobs wait than are read. The board then has scope keys with their
	// flows, but neither jobs nor lanes.
	many bool
}

// standing is the state of one scope key.
type standing struct {
	usage   inspect.Usage
	err     error     // the scope key holds foreign data
	full    []float64 // how full its fullest limit was, one for each reading
	history history
}

// history is the units that started under a scope key, over its longest window.
type history struct {
	read  time.Time // by the local clock; zero: not yet
	limit throttle.Limit
	bars  []int64 // the oldest first
}

// rate is a count per second, one point for each of the last readings.
type rate struct {
	known bool
	last  []float64
}

// mostPoints is how many readings a chart draws.
const mostPoints = 60

// with returns the list with one more point at its end. It leaves lists that it returned before
// unchanged.
func with(points []float64, point float64) []float64 {
	points = points[max(0, len(points)-mostPoints+1):]
	return append(points[:len(points):len(points)], point)
}

func (k scopeKey) compare(other scopeKey) int {
	return cmp.Or(cmp.Compare(k.Scope, other.Scope), cmp.Compare(k.Key, other.Key))
}

// drawn has the rendered parts of pages of one board, by request. Each part is rendered once for
// all browsers.
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
