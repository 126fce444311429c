package inspect

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Lane is the jobs that wait with the same scope keys and priority.
type Lane struct {
	// Name is the lane's name, for Jobs.
	Name string `json:"name"`
	// Flow is the key of the fair scope, empty if the throttle has none. Keys are the keys of the
	// keyed scopes, by the scope's name. Only the hash of a very long key is known.
	Flow string            `json:"flow,omitempty"`
	Keys map[string]string `json:"keys,omitempty"`
	// Priority is the priority of its jobs.
	Priority int `json:"priority,omitempty"`
	// Jobs is how many jobs are in the lane; a few of them may have left meanwhile. Since is
	// when its first job came; zero if that is not known.
	Jobs  int64     `json:"jobs"`
	Since time.Time `json:"since,omitzero"`
	// Costs are the units that its first job takes, by scope.
	Costs map[string]int64 `json:"costs,omitempty"`
	// Scope and Key name the scope key that has no room for the lane's first job; Key is empty
	// for Global. Looked is when a pull looks at that scope key again; zero if a pull looks at
	// it only after a change.
	Scope  string    `json:"scope"`
	Key    string    `json:"key,omitempty"`
	Looked time.Time `json:"looked,omitzero"`
}

// Lanes returns all lanes in which jobs wait, in the order in which their first jobs came. It
// changes nothing and blocks for two round trips for each 500 lanes or scope keys. If lanes move
// meanwhile, it reads them up to three times so as to miss none; a lane that was emptied may be
// among them. With more than 20,000 lanes it fails. Its other errors are those of Usage.
func (t *Inspector) Lanes(ctx context.Context) ([]Lane, error) {
	r, err := t.readLanes(ctx)
	if err != nil {
		return nil, err
	}
	return r.lanes(), nil
}

// lanes returns the lanes that were read, in the order in which their first jobs came.
func (r *reader) lanes() (all []Lane) {
	known := make(map[string]wire.Lane, len(r.Reader.Lanes))
	for _, l := range r.Reader.Lanes {
		known[l.Lane] = l
	}
	add := func(lane, under string, timer, since int64) {
		scope, key, _ := wire.SplitScopeKey(under)
		flow, priority, names, _ := wire.LaneParts(lane)
		keys, _ := wire.LaneKeys(lane, r.fair)
		all = append(all, Lane{
			Name: lane, Flow: wire.Decode(flow), Keys: keys, Priority: priority,
			Jobs: known[lane].Jobs, Since: wire.Instant(since), Costs: costsOf(names, known[lane].Costs),
			Scope: scope, Key: key, Looked: wire.Instant(timer),
		})
	}
	for _, q := range r.Snapshot.Queues {
		for _, f := range q.Flows {
			for _, standing := range f.Lanes {
				add(standing.Lane, q.Name, q.Timer, standing.Arrival)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Lane) int { return a.Since.Compare(b.Since) })
	return all
}

// costsOf returns the units that a job takes of the scope keys of its lane, by scope.
func costsOf(names string, units []int64) map[string]int64 {
	costs := make(map[string]int64)
	for i, name := range strings.Split(names, ",") {
		if scope, _, is := wire.SplitScopeKey(name); is && i < len(units) {
			costs[scope] = units[i]
		}
	}
	return costs
}

// Jobs returns a page of the jobs in a lane, in their order, as Waiting reservations. from is
// where the page begins, as the last call's next; empty means the front. The lane is named by
// Lane.Name or by throttle.Reservation.Lane. next is empty on the last page. Jobs that come or leave
// while pages are read may be missed or returned twice.
//
// Jobs changes nothing, blocks for one round trip and fails as Usage does.
func (t *Inspector) Jobs(ctx context.Context, lane, from string) (jobs []throttle.Reservation, next string, err error) {
	page, err := t.page(ctx, wire.LinesJobs, from, lane)
	if err != nil {
		return nil, "", err
	}
	keys, is := wire.LaneKeys(lane, t.fair)
	for page.More() {
		page.Refuse(!is)
		job := throttle.Job{ID: page.Waiter(lane).ID, Keys: maps.Clone(keys)}
		jobs = append(jobs, throttle.Reservation{Job: job, Outcome: throttle.Waiting, Now: wire.Instant(page.Now),
			Lane: lane})
	}
	return jobs, page.Next, t.in.Lanes().Check(page)
}
