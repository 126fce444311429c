package throttletest

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/lua"
)

// leftOf is how much time a job has left: until its deadline, and of its MaxWait, us.
type leftOf struct{ latest, maxWait int64 }

// memory answers calls of a throttle's scripts as Redis does, by package internal/line.
type memory struct {
	redis.Scripter // nil: a throttle calls no other methods

	line  *line.Line
	now   int64
	left  map[string]leftOf // of jobs with deadlines
	pause int64             // duration of the next pause, us
	lasts int64             // how long the next limits or mode last, us

	asked map[string]answered // by asker
}

// answered is the last request of an asker and its answer.
type answered struct {
	asking int64
	reply  string
}

func newMemory() *memory {
	return &memory{line: line.New(), left: make(map[string]leftOf), asked: make(map[string]answered)}
}

func (m *memory) clone() *memory {
	c := newMemory()
	c.line, c.now = m.line.Clone(), m.now
	return c
}

// request is a script's request.
type request struct {
	settings line.Settings
	args     []string // after the arguments that all scripts have
}

// verbs are the scripts, by their hashes.
var verbs = map[string]func(m *memory, r request) (any, error){
	hashOf(lua.Reserve): (*memory).reserve,
	hashOf(lua.Pull):    (*memory).pull,
	hashOf(lua.Leave):   (*memory).leave,
	hashOf(lua.Settle):  (*memory).settle,
	hashOf(lua.Running): (*memory).running,
	hashOf(lua.Set):     (*memory).set,
	hashOf(lua.Report):  (*memory).report,
	hashOf(lua.Usage):   (*memory).usage,
	hashOf(lua.Lines):   (*memory).lines,
}

func hashOf(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

var errNoScript = errors.New("throttletest: the model does not know this script")

// EvalSha runs a script.
func (m *memory) EvalSha(_ context.Context, hash string, _ []string, args ...any) *redis.Cmd {
	verb, is := verbs[hash]
	if !is {
		return redis.NewCmdResult(nil, errNoScript)
	}
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = fmt.Sprint(arg)
	}
	header, err := wire.ReadHeader(texts[1], texts[2])
	if err != nil {
		return redis.NewCmdResult(nil, err)
	}
	return redis.NewCmdResult(verb(m, request{settings: header.Settings, args: texts[3:]}))
}

// stamp is what most answers begin with.
func (m *memory) stamp() wire.Stamp { return wire.Stamp{Now: m.now, Next: m.line.Next()} }

func (m *memory) reserve(r request) (any, error) {
	asked, err := wire.ReadReserve(r.args)
	if err != nil {
		return nil, err
	}
	if last, known := m.asked[asked.Asker]; known && asked.Asking > 0 {
		switch {
		case last.asking == asked.Asking:
			return last.reply, nil
		case last.asking > asked.Asking:
			return nil, errors.New("STALE " + r.args[1])
		}
	}
	for i := range asked.Jobs {
		if left, known := m.left[asked.Jobs[i].ID]; known {
			asked.Jobs[i].Latest, asked.Jobs[i].MaxWait = left.latest, left.maxWait
		}
	}
	of := m.line
	if asked.Asking == 0 {
		of = m.line.Clone() // nothing is written
	}
	decisions := wire.Decisions{}
	for _, answer := range of.Reserve(m.now, r.settings, asked.Jobs) {
		decisions.Answers = append(decisions.Answers, wire.Decision{Answer: answer})
	}
	decisions.Stamp = m.stamp()
	reply := decisions.String()
	if asked.Asking > 0 {
		m.asked[asked.Asker] = answered{asked.Asking, reply}
	}
	return reply, nil
}

func (m *memory) pull(r request) (any, error) {
	asked, err := wire.ReadPull(r.args)
	if err != nil {
		return nil, err
	}
	r.settings.Timed = asked.Timed
	held := m.ended(r.settings, asked.Ended, false)
	pull := m.line.Pull
	if !asked.Delivers {
		pull = m.line.PullOnly
	}
	pulled := pull(m.now, r.settings, int(asked.Bookings), int(asked.Looks))
	return wire.Pulled{Stamp: m.stamp(), Held: held, Booked: pulled.Booked, Overdue: pulled.Overdue}.Reply(), nil
}

func (m *memory) leave(r request) (any, error) {
	left := m.line.Leave(m.now, r.settings, r.args)
	return wire.Done{Stamp: m.stamp(), Done: left}.Reply(), nil
}

func (m *memory) settle(r request) (any, error) {
	asked, err := wire.ReadSettle(r.args)
	if err != nil {
		return nil, err
	}
	done := m.line.Settle(m.now, r.settings, asked.Grant, asked.Actual, asked.Within, asked.Rebook)
	return wire.Done{Stamp: m.stamp(), Done: []bool{done}}.Reply(), nil
}

func (m *memory) running(r request) (any, error) {
	asked, err := wire.ReadRunning(r.args)
	if err != nil {
		return nil, err
	}
	r.settings.Timed = asked.Timed
	held := m.ended(r.settings, asked.Grants, asked.Renews)
	return wire.Done{Stamp: m.stamp(), Done: held}.Reply(), nil
}

// ended ends or renews grants, and returns for each whether it occupied its places until now.
func (m *memory) ended(settings line.Settings, grants []wire.Ended, renews bool) (held []bool) {
	for _, g := range grants {
		one := []line.Grant{{ID: g.ID, Start: g.Start}}
		if renews {
			held = append(held, m.line.Renew(m.now, settings, one)...)
		} else {
			held = append(held, m.line.Done(m.now, settings, one, g.Cooldowns)...)
		}
	}
	return held
}

func (m *memory) set(r request) (any, error) {
	asked, err := wire.ReadSet(r.args)
	if err != nil {
		return nil, err
	}
	reply, ends := wire.WasSet{InForce: asked.Value}, line.Never
	if asked.Lasts > 0 {
		ends = m.now + m.lasts
	}
	switch asked.What {
	case wire.SetPause, wire.SetResume:
		until := int64(0)
		if asked.What == wire.SetPause {
			until = m.now + m.pause
		}
		before, inForce := m.line.Pause(m.now, r.settings, asked.Name, until)
		reply.Before, reply.InForce = strconv.FormatInt(before, 10), strconv.FormatInt(inForce, 10)
	case wire.SetLimits:
		limits, err := line.ParseLimits(asked.Value)
		if err != nil {
			return nil, err
		}
		m.line.SetLimits(m.now, r.settings, asked.Name, limits, ends)
	case wire.SetMode:
		mode := line.Mode(0)
		if asked.Value != "" {
			mode = line.Mode(asked.Value[0])
		}
		m.line.SetMode(m.now, r.settings, asked.Name, mode, ends)
	}
	reply.Stamp = m.stamp()
	return reply.Reply(), nil
}

func (m *memory) report(r request) (any, error) {
	asked, err := wire.ReadReport(r.args)
	if err != nil {
		return nil, err
	}
	before, served, paused := m.line.Report(m.now, r.settings, asked.Name, asked.Report)
	return wire.Reported{Stamp: m.stamp(), Before: before, Served: served, Paused: paused}.Reply(), nil
}

func (m *memory) usage(r request) (any, error) {
	asked, err := wire.ReadUsage(r.args)
	if err != nil {
		return nil, err
	}
	used := wire.Used{Now: m.now}
	for _, name := range asked.Names {
		k := wire.KeyUsed{KeyState: m.line.State(m.now, r.settings, name)}
		ledgers := m.line.KeySnapshot(m.now, r.settings, name).Ledgers
		if asked.Count {
			k.Counted = []int64{m.count(ledgers, asked.From, asked.To)}
		}
		if asked.Entries {
			k.Ledgers = ledgers
		}
		used.Keys = append(used.Keys, k)
	}
	return used.Reply(), nil
}

// count returns the units in a past interval, by the finest window that reaches so far back.
func (m *memory) count(ledgers []line.LedgerSnapshot, from, to int64) int64 {
	best := -1
	for i, w := range ledgers {
		if w.Kind.Slides() && w.Length >= from && (best < 0 || w.Precision < ledgers[best].Precision) {
			best = i
		}
	}
	if best < 0 {
		return -1
	}
	w, units := ledgers[best], int64(0)
	for _, e := range w.Spent {
		if e.At >= (m.now+w.Shift-from)/w.Precision && e.At*w.Precision < m.now+w.Shift-to {
			units += e.Units
		}
	}
	return units
}

// lines answers with all entries of a kind on one page.
func (m *memory) lines(r request) (any, error) {
	asked, err := wire.ReadLines(r.args)
	if err != nil {
		return nil, err
	}
	snapshot, page := m.line.Snapshot(m.now, r.settings), wire.NewPage(m.now)
	jobs := func(lane string) []line.Waiter {
		i := slices.IndexFunc(snapshot.Lanes, func(l line.LaneSnapshot) bool { return l.Name == lane })
		if i < 0 {
			return nil
		}
		return snapshot.Lanes[i].Jobs
	}
	switch asked.Kind {
	case wire.LinesKeys:
		for _, q := range snapshot.Queues {
			page.Queue(q)
		}
	case wire.LinesClaims:
		for _, c := range snapshot.Claims {
			page.Claim(c)
		}
	case wire.LinesJob:
		page.Job(m.line.Job(asked.Of[0], asked.Of[1]))
	case wire.LinesQueues:
		for _, name := range asked.Of {
			i := slices.IndexFunc(snapshot.Queues, func(q line.QueueSnapshot) bool { return q.Name == name })
			if i < 0 || asked.From > 0 {
				page.Standings(line.QueueSnapshot{}, nil)
				continue
			}
			page.Standings(snapshot.Queues[i], jobs)
		}
	case wire.LinesLists, wire.LinesJobs:
		for _, lane := range asked.Of {
			page.Waiters(jobs(lane), asked.Kind == wire.LinesLists)
		}
	case wire.LinesLanes: // part of the answer to LinesQueues
	default:
		return nil, errors.New("throttletest: the model does not read " + asked.Kind)
	}
	return page.Reply(), nil
}
