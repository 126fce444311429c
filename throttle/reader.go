package throttle

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// How much of the line is read at most.
const (
	mostReadings = 3 // how often its lanes are read while they move
	mostLanes    = 20_000
	mostWaiting  = 1_000_000 // jobs
	mostNames    = 100       // scope keys in one call
)

// errTooMany is the error if more waits than is read.
var errTooMany = fmt.Errorf("throttle: more than %d lanes or %d jobs wait: a forecast would take too long",
	mostLanes, mostWaiting)

// reader reads what waits, and how the scope keys of the waiting lanes stand.
type reader struct {
	*setup
	now      time.Time
	snapshot line.Snapshot
	queues   []wire.Queue
	outline  outline
	places   []place // of the lanes
	lanes    []wire.Lane
	seen     map[string]bool // lanes
	jobs     int64
	accounts map[string]account // by the name of the scope key
}

// place is where a lane stands. A lane with a claim stands in no queue: its place is the first scope key
// of the claim, in case the claim is gone by the next reading.
type place struct {
	queue, flow string
	tag         float64
	lane        wire.Lane
}

// outline is the part of the line that changes whenever a lane moves: the queues' timers, the numbers of
// their flows, and the claims.
type outline struct {
	queues []wire.Queue
	claims []claimPlace
}

type claimPlace struct {
	lane string
	at   int64
}

func (o outline) equal(other outline) bool {
	same := func(a, b wire.Queue) bool {
		return a.Name == b.Name && a.Timer == b.Timer && a.Standing == b.Standing && a.Virtual == b.Virtual
	}
	return slices.EqualFunc(o.queues, other.queues, same) && slices.Equal(o.claims, other.claims)
}

// readLine reads what waits, and how the scope keys of the waiting lanes and of some jobs stand. The
// scope keys are read last, so that a job that is booked meanwhile counts twice rather than not at all.
func (t *setup) readLine(ctx context.Context, orders []*order) (*reader, error) {
	r, err := t.readLanes(ctx)
	if err == nil {
		err = r.readJobs(ctx)
	}
	if err == nil {
		err = r.readAccounts(ctx, orders)
	}
	return r, err
}

// readLanes reads which lanes there are and where they stand. A lane that moves meanwhile may be missed,
// so it then reads again, and keeps the lanes that only an earlier reading has found.
func (t *setup) readLanes(ctx context.Context) (*reader, error) {
	r, err := t.readOutline(ctx)
	var before []place
	for n := 1; err == nil; n++ {
		if err = r.readQueues(ctx); err != nil || n == mostReadings {
			break
		}
		var again *reader
		if again, err = t.readOutline(ctx); err != nil || again.outline.equal(r.outline) {
			break
		}
		before = append(before, r.places...)
		r = again
	}
	for _, p := range slices.Backward(before) {
		if r.lane(p.lane) {
			r.stands(p)
		}
	}
	return r, err
}

// stands adds a lane where an earlier reading found it.
func (r *reader) stands(p place) {
	i := slices.IndexFunc(r.snapshot.Queues, func(q line.QueueSnapshot) bool { return q.Name == p.queue })
	if i < 0 {
		i = len(r.snapshot.Queues)
		r.snapshot.Queues = append(r.snapshot.Queues, line.QueueSnapshot{Name: p.queue})
	}
	q := &r.snapshot.Queues[i]
	j := slices.IndexFunc(q.Flows, func(f line.FlowSnapshot) bool { return f.Flow == p.flow })
	if j < 0 {
		j = len(q.Flows)
		q.Flows = append(q.Flows, line.FlowSnapshot{Flow: p.flow, Tag: p.tag})
	}
	q.Flows[j].Lanes = append(q.Flows[j].Lanes, p.lane.Standing)
}

// readOutline reads the queues and the claims.
func (t *setup) readOutline(ctx context.Context) (*reader, error) {
	r := &reader{setup: t, seen: make(map[string]bool), accounts: make(map[string]account)}
	err := r.pages(ctx, wire.LinesKeys, func(p *wire.Page) { r.queues = append(r.queues, p.Queue()) })
	if err == nil {
		err = r.pages(ctx, wire.LinesClaims, func(p *wire.Page) { r.readClaim(r.claim(p)) })
	}
	r.outline.queues = r.queues
	r.alsoAside()
	return r, err
}

func (r *reader) readClaim(c wire.Claim) {
	if r.seen[c.Lane] { // a cursor may return a claim twice
		return
	}
	r.snapshot.Claims = append(r.snapshot.Claims, c.ClaimSnapshot)
	r.outline.claims = append(r.outline.claims, claimPlace{c.Lane, c.At})
	lane := wire.Lane{Standing: line.Standing{Lane: c.Lane}, Jobs: c.Jobs, Costs: c.Costs}
	if r.lane(lane) {
		flow, _, _, _ := wire.LaneParts(c.Lane)
		r.places = append(r.places, place{queue: c.Names[0], flow: flow, lane: lane})
	}
}

// alsoAside adds the scope keys under which lanes are only parked or have a claim: the tags of their
// flows are kept there.
func (r *reader) alsoAside() {
	known := make(map[string]bool)
	for _, q := range r.queues {
		known[q.Name] = true
	}
	add := func(name string) {
		if !known[name] {
			known[name] = true
			r.queues = append(r.queues, wire.Queue{QueueSnapshot: line.QueueSnapshot{Name: name}})
		}
	}
	for _, q := range r.queues {
		add(strings.TrimSuffix(q.Name, "!"))
	}
	for _, c := range r.snapshot.Claims {
		for _, name := range c.Names {
			add(name)
		}
	}
}

// lane notes a lane. It returns false for a lane that was noted before, since it has moved meanwhile.
func (r *reader) lane(of wire.Lane) (isNew bool) {
	if r.seen[of.Lane] {
		return false
	}
	r.seen[of.Lane] = true
	r.lanes = append(r.lanes, of)
	r.jobs += of.Jobs
	return true
}

// readQueues reads the flows and lanes in the queues, several small queues in one call.
func (r *reader) readQueues(ctx context.Context) error {
	for len(r.queues) > 0 {
		n := together(r.queues, mostFlows, func(q wire.Queue) int64 { return q.Standing })
		some := r.queues[:n]
		names := make([]string, n)
		for i, q := range some {
			names[i] = q.Name
		}
		for from := int64(0); from == 0 || from < some[0].Standing; from += mostFlows {
			p, err := r.page(ctx, wire.LinesQueues, strconv.FormatInt(from, 10), names...)
			if err != nil {
				return err
			}
			for i := range some {
				if i > 0 && !p.More() { // the page was full
					some = some[:i]
					break
				}
				if err := r.readQueue(ctx, p, &some[i].QueueSnapshot); err != nil {
					return err
				}
			}
			if err := unreadable(p); err != nil {
				return err
			}
		}
		r.queues = r.queues[len(some):]
		for i := range some {
			r.snapshot.Queues = append(r.snapshot.Queues, some[i].QueueSnapshot)
		}
		if len(r.lanes) > mostLanes || r.jobs > mostWaiting {
			return errTooMany
		}
	}
	return nil
}

// together is how many elements from the front go into one call: at least one, and more if they are small.
func together[T any](all []T, most int64, size func(T) int64) int {
	sum, n := int64(0), 0
	for n < len(all) {
		if sum += max(1, size(all[n])); sum > most {
			break
		}
		n++
	}
	return max(1, n)
}

// readQueue reads the flows of one queue, and their tags.
func (r *reader) readQueue(ctx context.Context, p *wire.Page, q *line.QueueSnapshot) error {
	for n := p.Natural(); n > 0 && p.More(); n-- {
		f := line.FlowSnapshot{Flow: p.Text(), Tag: p.Float()}
		lanes := p.Natural()
		add := func(of wire.Lane) {
			if r.lane(of) {
				f.Lanes = append(f.Lanes, of.Standing)
				r.places = append(r.places, place{q.Name, f.Flow, f.Tag, of})
			}
		}
		for i := int64(0); i < lanes && p.More(); i++ {
			add(p.Standing())
		}
		if lanes == mostFlows {
			if err := r.restOfLanes(ctx, q.Name, f.Flow, add); err != nil {
				return err
			}
		}
		q.Flows = append(q.Flows, f)
	}
	p.Tags(q)
	return nil
}

// restOfLanes reads a flow's lanes after the first page.
func (r *reader) restOfLanes(ctx context.Context, queue, flow string, add func(wire.Lane)) error {
	for from := strconv.Itoa(mostFlows); from != ""; {
		p, err := r.page(ctx, wire.LinesLanes, from, queue, flow)
		if err != nil {
			return err
		}
		for p.More() {
			add(p.Standing())
		}
		if err := unreadable(p); err != nil {
			return err
		}
		if from = p.Next; len(r.lanes) > mostLanes {
			return errTooMany
		}
	}
	return nil
}

// readJobs reads the waiting jobs, several small lanes in one call.
func (r *reader) readJobs(ctx context.Context) error {
	for rest := r.lanes; len(rest) > 0; {
		n := together(rest, mostOnPage, func(l wire.Lane) int64 { return l.Jobs })
		some := rest[:n]
		rest = rest[n:]
		var err error
		if some[0].Jobs > mostOnPage {
			err = r.readLong(ctx, some[0].Lane)
		} else {
			err = r.readLists(ctx, some)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readLong reads a lane of several pages, the last page first: jobs are booked from the front, and the
// others keep their index from the end. Jobs that arrive meanwhile push some to a page where they are
// read a second time.
func (r *reader) readLong(ctx context.Context, lane string) error {
	var pages [][]line.Waiter
	told := make(map[string]bool)
	for from, more := int64(-mostOnPage), true; more; from -= mostOnPage {
		p, err := r.ask(ctx, wire.LinesJobs, from, lane)
		if err != nil {
			return err
		}
		var jobs []line.Waiter
		for p.More() {
			if w := p.Waiter(lane); !told[w.ID] {
				told[w.ID] = true
				jobs = append(jobs, w)
			}
		}
		if err := unreadable(p); err != nil {
			return err
		}
		pages, more = append(pages, jobs), p.Next != ""
	}
	slices.Reverse(pages)
	r.snapshot.Lanes = append(r.snapshot.Lanes, line.LaneSnapshot{Name: lane, Jobs: slices.Concat(pages...)})
	return nil
}

func (r *reader) readLists(ctx context.Context, lanes []wire.Lane) error {
	names := make([]string, len(lanes))
	for i, l := range lanes {
		names[i] = l.Lane
	}
	p, err := r.page(ctx, wire.LinesLists, "", names...)
	if err != nil {
		return err
	}
	for _, name := range names {
		lane := line.LaneSnapshot{Name: name}
		for n := p.Natural(); n > 0 && p.More(); n-- {
			lane.Jobs = append(lane.Jobs, p.Waiter(name))
		}
		r.snapshot.Lanes = append(r.snapshot.Lanes, lane)
	}
	return unreadable(p)
}

// readAccounts reads how the scope keys of the waiting lanes and of some jobs stand. The last answer sets
// now.
func (r *reader) readAccounts(ctx context.Context, orders []*order) error {
	var names []string
	for _, l := range r.lanes {
		if _, _, of, _ := wire.LaneParts(l.Lane); of != "" {
			names = append(names, strings.Split(of, ",")...)
		}
	}
	for _, o := range orders {
		for i := range o.charges {
			names = append(names, o.charges[i].name)
		}
	}
	slices.Sort(names)
	for some := range slices.Chunk(slices.Compact(names), mostNames) {
		accounts, err := r.usage(ctx, wire.Usage{Entries: true, Names: some})
		if err != nil {
			return err
		}
		for i, name := range some {
			r.accounts[name] = accounts[i]
			r.now = accounts[i].Now
			r.snapshot.Keys = append(r.snapshot.Keys, r.snapshotOf(&accounts[i], name))
		}
	}
	if r.now.IsZero() {
		p, err := r.page(ctx, wire.LinesClaims, "") // for its time
		if err != nil {
			return err
		}
		r.now = wire.Instant(p.Now)
	}
	return nil
}

// snapshotOf is how a scope key stands. A running job is assumed to end when it has run as long as others
// did; if that is not known, as soon as another job could start.
func (r *reader) snapshotOf(a *account, name string) line.KeySnapshot {
	k := a.snapshot(name, r.scopeOf(a.Scope))
	for i, u := range a.Limits {
		if !u.Limit.Running {
			continue
		}
		lasts, known := r.runs(a.Scope)
		if !known {
			k.Limits[i].Units = Unlimited
			continue
		}
		lease, runs := k.Limits[i].Span, line.Lease(max(1, lasts.Microseconds()))
		k.Limits[i].Span = runs
		k.Ledgers = slices.Clone(k.Ledgers)
		for j := range k.Ledgers {
			if k.Ledgers[j].Span == lease {
				k.Ledgers[j].Span = runs
			}
		}
	}
	return k
}

// snapshot is how a scope key stands, for package line.
func (a *account) snapshot(name string, of Scope) line.KeySnapshot {
	k := line.KeySnapshot{Name: name, Part: inThousandths(a.Served), Mode: a.Mode.counted(),
		Ledgers: a.ledgers}
	if !a.Paused.IsZero() {
		k.Paused = a.Paused.UnixMicro()
	}
	for _, u := range a.Limits {
		k.Limits = append(k.Limits, of.counted(u.Limit))
	}
	return k
}
