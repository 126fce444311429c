package throttletest

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// lines tells all of a kind on one page.
func (m *memory) lines(r request) (any, error) {
	snapshot := m.line.Snapshot(m.now, r.settings)
	reply := []any{strconv.FormatInt(m.now, 10), ""}
	tell := func(values ...any) {
		for _, value := range values {
			if n, is := value.(int64); is {
				value = strconv.FormatInt(n, 10)
			}
			if x, is := value.(float64); is {
				value = strconv.FormatFloat(x, 'g', 17, 64)
			}
			reply = append(reply, value)
		}
	}
	switch kind, of := r.args[0], r.args[1:len(r.args)-2]; kind {
	case "keys":
		for _, q := range snapshot.Queues {
			tell(q.Name, q.Timer, int64(len(q.Flows)), q.Virtual)
		}
	case "claims":
		for _, c := range snapshot.Claims {
			tell(c.Lane, c.At, claimText(c), int64(len(jobsOf(snapshot, c.Lane))))
		}
	case "job":
		s := m.line.Job(of[0], of[1])
		tell(s.Slot, s.Arrival, s.Before, s.Jobs, s.Queue, s.Timer)
	case "queues":
		for _, name := range of {
			tellQueue(tell, snapshot, name, r.args[len(r.args)-2] == "0")
		}
	case "lists":
		for _, name := range of {
			jobs := jobsOf(snapshot, name)
			tell(int64(len(jobs)))
			tellJobs(tell, jobs)
		}
	case "jobs":
		tellJobs(tell, jobsOf(snapshot, of[0]))
	case "lanes": // queues told them
	default:
		return nil, errors.New("throttletest: the model does not tell " + kind)
	}
	return reply, nil
}

// tellQueue tells all that stands in a queue on its first page.
func tellQueue(tell func(...any), s line.Snapshot, name string, isFirst bool) {
	i := slices.IndexFunc(s.Queues, func(q line.QueueSnapshot) bool { return q.Name == name })
	if i < 0 || !isFirst {
		tell(int64(0), int64(0))
		return
	}
	q := s.Queues[i]
	tell(int64(len(q.Flows)))
	for _, f := range q.Flows {
		tell(f.Flow, f.Tag, int64(len(f.Lanes)))
		for _, l := range f.Lanes {
			tell(l.Lane, l.Arrival, int64(len(jobsOf(s, l.Lane))))
		}
	}
	tell(int64(1+len(q.Finish)+len(q.HadTurn)+len(q.Aside)+len(q.Classes)), "*", q.Virtual)
	for _, flow := range slices.Sorted(maps.Keys(q.Classes)) {
		tell("#"+flow, tagsText(q.Classes[flow]))
	}
	for _, flow := range slices.Sorted(maps.Keys(q.Finish)) {
		tell(flow, q.Finish[flow])
	}
	for _, flow := range slices.Sorted(maps.Keys(q.Aside)) {
		tell("<"+flow, q.Aside[flow])
	}
	for _, flow := range q.HadTurn {
		tell(">"+flow, int64(1))
	}
}

func tagsText(tags line.ClassTags) string {
	text := strconv.FormatFloat(tags.Virtual, 'g', 17, 64)
	for _, tag := range tags.Tags {
		text += " " + strconv.FormatFloat(tag, 'g', 17, 64)
	}
	return text
}

func tellJobs(tell func(...any), jobs []line.Waiter) {
	for _, w := range jobs {
		costs := make([]string, len(w.Costs))
		for i, n := range w.Costs {
			costs[i] = strconv.FormatInt(n, 10)
		}
		tell(w.ID, w.Arrival, strings.Join(costs, ","))
	}
}

func claimText(c line.ClaimSnapshot) (text string) {
	for i, name := range c.Names {
		if i > 0 {
			text += ","
		}
		text += name + "=" + strconv.FormatInt(c.Units[i], 10)
	}
	return text
}

func jobsOf(s line.Snapshot, name string) []line.Waiter {
	for _, lane := range s.Lanes {
		if lane.Name == name {
			return lane.Jobs
		}
	}
	return nil
}
