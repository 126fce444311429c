// Package lanes reads the waiting lanes and the queues in which they stand, as snapshots from which internal/line
// goes on.
package lanes

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// The bounds of a reading of the line.
const (
	mostReadings = 3 // how often its lanes are read while they move
	mostLanes    = 20_000
	mostWaiting  = 1_000_000 // jobs
)

// ErrTooMany is the error if more lanes or jobs wait than a Reader reads.
var ErrTooMany = fmt.Errorf("throttle: more than %d lanes or %d jobs wait: a forecast would take too long",
	mostLanes, mostWaiting)

// MostOnPage is how many entries one page has.
const MostOnPage = 500

// mostFlows is how many flows of queues, and lanes of each flow, one page has: a flow takes several commands.
const mostFlows = 200

// Script runs the script lines.
type Script struct {
	// Run runs the script.
	Run func(ctx context.Context, asked wire.Lines) (any, error)
	// Unreadable is the error for an answer that cannot be read.
	Unreadable error
}

// Page asks for a page of one kind of entries that begins at an index. A page of jobs may begin at a
// negative index, counted from the end.
func (s Script) Page(ctx context.Context, kind string, from int64, of ...string) (*wire.Page, error) {
	asked := wire.Lines{Kind: kind, Of: of, From: from, Count: MostOnPage}
	if kind == wire.LinesQueues {
		asked.Count = mostFlows
	}
	reply, err := s.Run(ctx, asked)
	if err != nil {
		return nil, err
	}
	return wire.ReadPage(reply), nil
}

// Check returns the error of a page that has been read: Unreadable if it could not be, else nil.
func (s Script) Check(p *wire.Page) error {
	if p.Err() != nil {
		return s.Unreadable
	}
	return nil
}

// Pages reads all pages of one kind of entries.
func (s Script) Pages(ctx context.Context, kind string, read func(p *wire.Page)) error {
	for from := int64(0); ; {
		p, err := s.Page(ctx, kind, from)
		if err != nil {
			return err
		}
		for p.More() {
			read(p)
		}
		if err := s.Check(p); err != nil || p.Next == "" {
			return err
		}
		if from, err = strconv.ParseInt(p.Next, 10, 64); err != nil {
			return s.Unreadable
		}
	}
}

// Reader reads the waiting lanes and jobs. It is for one goroutine.
type Reader struct {
	Script
	Snapshot line.Snapshot // without scope keys
	Lanes    []wire.Lane
	queues   []wire.Queue
	outline  outline
	places   []place         // of the lanes
	seen     map[string]bool // lanes
	jobs     int64
}

// place is where a lane stands.
type place struct {
	queue, flow string
	tag         float64
	lane        wire.Lane
}

// outline is the part of the line that changes whenever a lane moves: the queues' timers, the numbers of
// their flows, and the claims.
type outline struct {
	queues []wire.Queue
	claims []line.ClaimSnapshot
}

func (o outline) equal(other outline) bool {
	same := func(a, b wire.Queue) bool {
		return a.Name == b.Name && a.Timer == b.Timer && a.Standing == b.Standing && a.Virtual == b.Virtual
	}
	return slices.EqualFunc(o.queues, other.queues, same) && slices.Equal(o.claims, other.claims)
}

// Read reads the lanes and the queues in which they stand. A reading may miss a lane that moves meanwhile. Read
// then reads again, and keeps the lanes that only an earlier reading has found.
func Read(ctx context.Context, script Script) (*Reader, error) {
	r, err := readOutline(ctx, script)
	var before []place
	for n := 1; err == nil; n++ {
		if err = r.readQueues(ctx); err != nil || n == mostReadings {
			break
		}
		var again *Reader
		if again, err = readOutline(ctx, script); err != nil || again.outline.equal(r.outline) {
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

// stands adds a lane to the queue in which an earlier reading found it.
func (r *Reader) stands(p place) {
	i := slices.IndexFunc(r.Snapshot.Queues, func(q line.QueueSnapshot) bool { return q.Name == p.queue })
	if i < 0 {
		i = len(r.Snapshot.Queues)
		r.Snapshot.Queues = append(r.Snapshot.Queues, line.QueueSnapshot{Name: p.queue})
	}
	q := &r.Snapshot.Queues[i]
	j := slices.IndexFunc(q.Flows, func(f line.FlowSnapshot) bool { return f.Flow == p.flow })
	if j < 0 {
		j = len(q.Flows)
		q.Flows = append(q.Flows, line.FlowSnapshot{Flow: p.flow, Tag: p.tag})
	}
	q.Flows[j].Lanes = append(q.Flows[j].Lanes, p.lane.Standing)
}

// readOutline reads the queues and the claims.
func readOutline(ctx context.Context, script Script) (*Reader, error) {
	r := &Reader{Script: script, seen: make(map[string]bool)}
	err := r.Pages(ctx, wire.LinesKeys, func(p *wire.Page) { r.queues = append(r.queues, p.Queue()) })
	if err == nil {
		known := make(map[string]bool)
		err = r.Pages(ctx, wire.LinesClaims, func(p *wire.Page) {
			if c := p.Claim(); !known[c.Key] { // a cursor may return a claim twice
				known[c.Key] = true
				r.Snapshot.Claims = append(r.Snapshot.Claims, c)
			}
		})
	}
	r.outline = outline{r.queues, r.Snapshot.Claims}
	if err == nil && r.flows() > mostLanes {
		err = ErrTooMany
	}
	return r, err
}

// flows returns how many flows stand in the queues. Each flow has at least one lane in its queue.
func (r *Reader) flows() (n int64) {
	for _, q := range r.queues {
		n += q.Standing
	}
	return n
}

// lane notes a lane. It returns false for a lane that was noted before and has moved meanwhile.
func (r *Reader) lane(of wire.Lane) (isNew bool) {
	if r.seen[of.Lane] {
		return false
	}
	r.seen[of.Lane] = true
	r.Lanes = append(r.Lanes, of)
	r.jobs += of.Jobs
	return true
}

// readQueues reads the flows and lanes in the queues, several small queues in one call.
func (r *Reader) readQueues(ctx context.Context) error {
	for len(r.queues) > 0 {
		n := together(r.queues, mostFlows, func(q wire.Queue) int64 { return q.Standing })
		some := r.queues[:n]
		names := make([]string, n)
		for i, q := range some {
			names[i] = q.Name
		}
		for from := int64(0); from == 0 || from < some[0].Standing; from += mostFlows {
			p, err := r.Page(ctx, wire.LinesQueues, from, names...)
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
			if err := r.Check(p); err != nil {
				return err
			}
		}
		r.queues = r.queues[len(some):]
		for i := range some {
			r.Snapshot.Queues = append(r.Snapshot.Queues, some[i].QueueSnapshot)
		}
		if len(r.Lanes) > mostLanes || r.jobs > mostWaiting {
			return ErrTooMany
		}
	}
	return nil
}

// together returns how many elements from the front go into one call: at least one, more if they are small.
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
func (r *Reader) readQueue(ctx context.Context, p *wire.Page, q *line.QueueSnapshot) error {
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
func (r *Reader) restOfLanes(ctx context.Context, queue, flow string, add func(wire.Lane)) error {
	for from, more := int64(mostFlows), true; more; {
		p, err := r.Page(ctx, wire.LinesLanes, from, queue, flow)
		if err != nil {
			return err
		}
		for p.More() {
			add(p.Standing())
		}
		if err := r.Check(p); err != nil {
			return err
		}
		if len(r.Lanes) > mostLanes {
			return ErrTooMany
		}
		if more = p.Next != ""; more {
			if from, err = strconv.ParseInt(p.Next, 10, 64); err != nil {
				return r.Unreadable
			}
		}
	}
	return nil
}

// ReadJobs reads the waiting jobs, several small lanes in one call.
func (r *Reader) ReadJobs(ctx context.Context) error {
	for rest := r.Lanes; len(rest) > 0; {
		n := together(rest, MostOnPage, func(l wire.Lane) int64 { return l.Jobs })
		some := rest[:n]
		rest = rest[n:]
		var err error
		if some[0].Jobs > MostOnPage {
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
func (r *Reader) readLong(ctx context.Context, lane string) error {
	var pages [][]line.Waiter
	told := make(map[string]bool)
	for from, more := int64(-MostOnPage), true; more; from -= MostOnPage {
		p, err := r.Page(ctx, wire.LinesJobs, from, lane)
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
		if err := r.Check(p); err != nil {
			return err
		}
		pages, more = append(pages, jobs), p.Next != ""
	}
	slices.Reverse(pages)
	r.Snapshot.Lanes = append(r.Snapshot.Lanes, line.LaneSnapshot{Name: lane, Jobs: slices.Concat(pages...)})
	return nil
}

func (r *Reader) readLists(ctx context.Context, lanes []wire.Lane) error {
	names := make([]string, len(lanes))
	for i, l := range lanes {
		names[i] = l.Lane
	}
	p, err := r.Page(ctx, wire.LinesLists, 0, names...)
	if err != nil {
		return err
	}
	for _, name := range names {
		lane := line.LaneSnapshot{Name: name}
		for n := p.Natural(); n > 0 && p.More(); n-- {
			lane.Jobs = append(lane.Jobs, p.Waiter(name))
		}
		r.Snapshot.Lanes = append(r.Snapshot.Lanes, lane)
	}
	return r.Check(p)
}
