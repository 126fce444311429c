package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a forecast reads of the line at most.
const (
	mostLanes   = 10_000
	mostWaiting = 1_000_000 // jobs
	mostNames   = 100       // scope keys in one call
)

// Forecast says when jobs would start.
type Forecast struct {
	// Now is when it was made, on Redis' clock.
	Now time.Time
	// Starts has for each job its start on Redis' clock, at its place; zero where it
	// never starts, since a limit of 0, or of less than its weight, is in force.
	Starts []time.Time
	// Last is the last of them.
	Last time.Time
}

// Forecast says when new jobs would start if they were reserved now, one after the
// other, and nothing else came: given what is spent, booked, paused and in line, and
// the shares. It changes nothing. The jobs need no ID; MaxWait, Deadline and Nonce are
// not read.
//
// It is about right: where several may take the last units of a window, who does hangs on
// the moment of a pull, and for the others it is a window later.
//
// It plays the line through in this process, from what it reads of Redis. It blocks for
// some round trips: one for each lane or 500 jobs in line and each hundred scope keys.
// With more than 10,000 lanes or a million jobs it fails. Its errors: those of Peek, by
// the first job that has one.
func (t *Throttle) Forecast(ctx context.Context, jobs []Job) (Forecast, error) {
	orders := make([]*order, len(jobs))
	for i, job := range jobs {
		if job.ID == "" {
			job.ID = strconv.Itoa(i)
		}
		var err error
		if orders[i], err = t.order(ctx, job); err != nil {
			return Forecast{}, err
		}
	}
	line, err := t.readLine(ctx, orders)
	if err != nil {
		return Forecast{}, err
	}
	return line.play(t, orders)
}

// Expect says when jobs that Reserve answered would start if nothing else came: a
// booked one at its slot, one in line when its turn comes. It blocks and fails as
// Forecast does.
func (d Driver) Expect(ctx context.Context, answers []Reservation) (Forecast, error) {
	line, err := d.throttle.readLine(ctx, nil)
	if err != nil {
		return Forecast{}, err
	}
	orders := make([]*order, len(answers))
	for i, r := range answers {
		orders[i] = &order{job: r.Job}
	}
	return line.play(d.throttle, orders)
}

// snapshot is what Redis has of the line.
type snapshot struct {
	now      time.Time
	queues   []queued
	accounts map[string]account // by the name of the scope key
	lanes    int
	jobs     int
}

// queued is what stands under one scope key.
type queued struct {
	name  string
	timer time.Time
	flows []queuedFlow
}

type queuedFlow struct {
	flowTag
	lanes []queuedLane
}

type queuedLane struct {
	standing
	waiters []waiter
}

// play plays the line through and says when the jobs start.
func (s *snapshot) play(*Throttle, []*order) (Forecast, error) {
	return Forecast{}, fmt.Errorf("throttle: a forecast is not there yet: %w", errors.ErrUnsupported)
}

// readLine reads what waits, and how the scope keys stand that concern it and some jobs.
func (t *Throttle) readLine(ctx context.Context, orders []*order) (*snapshot, error) {
	s := &snapshot{accounts: make(map[string]account)}
	err := t.pages(ctx, "keys", func(p *page) {
		s.now = p.now
		name := p.text()
		s.queues = append(s.queues, queued{name: name, timer: p.instant()})
		p.natural() // flows
	})
	for i := 0; i < len(s.queues) && err == nil; i++ {
		err = t.readFlows(ctx, s, &s.queues[i])
	}
	if err != nil {
		return nil, err
	}
	return s, t.readAccounts(ctx, s, orders)
}

func (t *Throttle) readFlows(ctx context.Context, s *snapshot, q *queued) error {
	err := t.pages(ctx, "flows", func(p *page) { q.flows = append(q.flows, queuedFlow{flowTag: p.flow()}) }, q.name)
	for i := 0; i < len(q.flows) && err == nil; i++ {
		err = t.readLanes(ctx, s, q.name, &q.flows[i])
	}
	return err
}

func (t *Throttle) readLanes(ctx context.Context, s *snapshot, name string, f *queuedFlow) error {
	err := t.pages(ctx, "lanes", func(p *page) { f.lanes = append(f.lanes, queuedLane{standing: p.standing()}) }, name, f.flow)
	s.lanes += len(f.lanes)
	for i := 0; i < len(f.lanes) && err == nil; i++ {
		lane := &f.lanes[i]
		s.jobs += int(lane.jobs)
		if s.lanes > mostLanes || s.jobs > mostWaiting {
			return fmt.Errorf("throttle: more than %d lanes or %d jobs wait: a forecast would take too long", mostLanes, mostWaiting)
		}
		err = t.pages(ctx, "jobs", func(p *page) { lane.waiters = append(lane.waiters, p.waiter()) }, lane.lane)
	}
	return err
}

// pages reads all pages of one kind of entries.
func (t *Throttle) pages(ctx context.Context, kind string, read func(p *page), of ...string) error {
	for from := ""; ; {
		p, err := t.page(ctx, kind, from, of...)
		if err != nil {
			return err
		}
		for p.more() {
			read(p)
		}
		if err := p.end(); err != nil {
			return err
		}
		if from = p.next; from == "" {
			return nil
		}
	}
}

// readAccounts reads how the scope keys stand that concern the line or some jobs.
func (t *Throttle) readAccounts(ctx context.Context, s *snapshot, orders []*order) error {
	for names := range slices.Chunk(s.names(orders), mostNames) {
		accounts, err := t.usage(ctx, usageEntries, names...)
		if err != nil {
			return err
		}
		for i, name := range names {
			s.accounts[name] = accounts[i]
		}
	}
	return nil
}

// names are those of the scope keys that concern the line or some jobs.
func (s *snapshot) names(orders []*order) []string {
	var names []string
	for _, q := range s.queues {
		for _, f := range q.flows {
			for _, l := range f.lanes {
				if _, of, _ := strings.Cut(l.lane, "|"); of != "" {
					names = append(names, strings.Split(of, ",")...)
				}
			}
		}
	}
	for _, o := range orders {
		for i := range o.charges {
			names = append(names, o.charges[i].name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
