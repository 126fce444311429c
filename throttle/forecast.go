package throttle

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// What a forecast reads of the line at most: lanes, jobs of a lane, and pages in a round
// trip.
const (
	mostLanes   = 10_000
	mostWaiting = 100_000
	mostPages   = 10
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
// the moment of a sweep, and for the others it is a window later.
//
// It plays the line through in this process, from what it reads of Redis. It blocks for
// some round trips, one more for each thousand jobs in line or each hundred scope keys.
// Of more than 100,000 jobs in one lane it takes the mean weight for the rest; with more
// than 10,000 lanes it fails. Its errors: those of Peek, by the first job that has one.
func (t *Throttle) Forecast(ctx context.Context, jobs []Job) (Forecast, error) {
	line, err := t.readLine(ctx)
	if err != nil {
		return Forecast{}, err
	}
	newcomers, lanes := make([]*waiter, len(jobs)), make([]*simLane, len(jobs))
	for i, job := range jobs {
		if job.ID == "" {
			job.ID = strconv.Itoa(i)
		}
		c, err := t.newCall(ctx, job)
		if err != nil {
			return Forecast{}, err
		}
		newcomers[i], lanes[i] = &waiter{weight: job.Weight}, line.lane(c)
	}
	return t.foresee(ctx, line, newcomers, lanes)
}

// Expect says when jobs that Reserve answered would start if nothing else came: a
// booked one at its slot, one in line when its turn comes. It blocks and fails as
// Forecast does.
func (t *Throttle) Expect(ctx context.Context, answers []Reservation) (Forecast, error) {
	line, err := t.readLine(ctx)
	if err != nil {
		return Forecast{}, err
	}
	waiters := make([]*waiter, len(answers))
	ids, unread := line.ids(), make(map[*simLane][]int)
	for i, r := range answers {
		waiters[i] = ids[r.Job.ID]
		switch {
		case r.Outcome != Waiting:
			waiters[i] = &waiter{start: r.Start.UnixMicro()}
		case waiters[i] == nil:
			// It has been booked since, or is not there any more.
			waiters[i] = &waiter{start: line.began + t.options.Lookahead.Microseconds()}
			if lane := line.laneOf(r.Job); lane != nil {
				unread[lane] = append(unread[lane], i)
			}
		}
	}
	for lane, places := range unread {
		// Or it is one of those whose IDs are not read, the last of their lane.
		rest := lane.unread()
		for n := 1; n <= min(len(rest), len(places)); n++ {
			waiters[places[len(places)-n]] = rest[len(rest)-n]
		}
	}
	return t.foresee(ctx, line, waiters, nil)
}

// foresee plays the line through. Where there are lanes, the waiters come to them now.
func (t *Throttle) foresee(ctx context.Context, line *simulation, waiters []*waiter, lanes []*simLane) (Forecast, error) {
	if err := t.readLedgers(ctx, line); err != nil {
		return Forecast{}, err
	}
	line.begin()
	for i, lane := range lanes {
		line.arrive(lane, waiters[i])
	}
	line.run()
	forecast := Forecast{Now: time.UnixMicro(line.began), Starts: make([]time.Time, len(waiters))}
	for i, w := range waiters {
		if w.start == 0 {
			continue
		}
		forecast.Starts[i] = time.UnixMicro(w.start)
		if forecast.Starts[i].After(forecast.Last) {
			forecast.Last = forecast.Starts[i]
		}
	}
	return forecast, nil
}

// readLine reads which jobs wait.
func (t *Throttle) readLine(ctx context.Context) (*simulation, error) {
	if ctx == nil {
		return nil, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	line := newSimulation(t)
	for cursor := "0"; ; {
		reply, err := t.redis.run(ctx, lanesScript, t.keys.shared[:], []any{t.nowArgument(), cursor, mostLines})
		if err != nil {
			return nil, err
		}
		if !reply.is("itt") {
			return nil, badReply("lanes", reply)
		}
		line.began, line.time = reply.integer(0), number(reply.text(2))
		for rest := reply[3:]; len(rest) > 0; rest = rest[6:] {
			if !rest.is("tiiitt") {
				return nil, badReply("lanes", reply)
			}
			if err := line.add(rest); err != nil {
				return nil, err
			}
		}
		if len(line.lanes) > mostLanes {
			return nil, fmt.Errorf("throttle: more than %d lanes wait: a forecast would take too long", mostLanes)
		}
		if cursor = reply.text(1); cursor == "0" {
			return line, t.readWaiting(ctx, line)
		}
	}
}

func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n
}

// readWaiting reads the jobs that wait in each lane, in rounds of a page each.
func (t *Throttle) readWaiting(ctx context.Context, line *simulation) error {
	lanes := line.lanes
	for len(lanes) > 0 {
		var more []*simLane
		for some := range slices.Chunk(lanes, mostPages) {
			left, err := t.readPages(ctx, some)
			if err != nil {
				return err
			}
			more = append(more, left...)
		}
		lanes = more
	}
	return nil
}

// readPages reads a page of each lane and returns those that have another.
func (t *Throttle) readPages(ctx context.Context, lanes []*simLane) (more []*simLane, err error) {
	shape := func(i int) ([]string, []any) {
		keys := t.keys.line(lanes[i].name)
		return keys[5:], []any{t.nowArgument(), lanes[i].read, mostLines}
	}
	replies := t.redis.runAll(ctx, waitingScript, len(lanes), shape)
	for i, lane := range lanes {
		reply := replies[i]
		if reply == nil {
			keys, args := shape(i)
			if reply, err = t.redis.run(ctx, waitingScript, keys, args); err != nil {
				return nil, err
			}
		}
		if !reply.is("i") {
			return nil, badReply("waiting", reply)
		}
		page := reply[1:]
		if err := lane.take(page); err != nil {
			return nil, err
		}
		if len(page) == 3*mostLines && lane.read < mostWaiting {
			more = append(more, lane)
		}
	}
	return more, nil
}

// readLedgers reads what is spent and booked of every scope key that the lanes meet.
func (t *Throttle) readLedgers(ctx context.Context, line *simulation) error {
	names := make(map[string]*scopeKeyState)
	var order []*scopeKeyState
	for _, lane := range line.lanes {
		for i := range lane.call.met {
			name := lane.call.met[i].name()
			if names[name] == nil {
				names[name] = &scopeKeyState{met: lane.call.met[i], class: t.class(lane.call.met[i].scope.Name)}
				order = append(order, names[name])
			}
			lane.keys = append(lane.keys, names[name])
		}
	}
	for states := range slices.Chunk(order, mostAtOnce) {
		calls := make([]*call, len(states))
		for i, state := range states {
			// By its encoding, since of a very long key a lane only has that.
			c := t.callOnly(state.met)
			if err := t.rules(c); err != nil {
				return err
			}
			calls[i] = c
		}
		shape := func(i int) ([]string, []any) {
			return calls[i].keysOn(), calls[i].args(t.nowArgument(), calls[i].names, calls[i].belief, micros(t.options.Grace))
		}
		replies := t.redis.runAll(ctx, entriesScript, len(calls), shape)
		for i, c := range calls {
			reply, err := replies[i], error(nil)
			if reply == nil {
				reply, err = t.ask(ctx, entriesScript, c, func() ([]string, []any) { return shape(i) })
			}
			if err == nil {
				err = states[i].read(c, reply)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
