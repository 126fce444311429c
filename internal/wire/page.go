package wire

import (
	"maps"
	"slices"
	"strconv"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// PageWriter writes a reply of lines.lua, which is one page.
type PageWriter struct{ reply []any }

// NewPage begins a page.
func NewPage(now int64) *PageWriter { return &PageWriter{[]any{integer(now), ""}} }

// Reply returns the reply of lines.lua.
func (w *PageWriter) Reply() []any { return w.reply }

func (w *PageWriter) add(values ...any) {
	for _, value := range values {
		switch x := value.(type) {
		case int64:
			value = integer(x)
		case int:
			value = strconv.Itoa(x)
		case float64:
			value = number(x)
		}
		w.reply = append(w.reply, value)
	}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }

// Queue writes an entry of LinesKeys.
func (w *PageWriter) Queue(q line.QueueSnapshot) { w.add(q.Name, q.Timer, len(q.Flows), q.Virtual) }

// Claim writes an entry of LinesClaims.
func (w *PageWriter) Claim(c line.ClaimSnapshot) { w.add(c.Key, c.At, c.ID) }

// Job writes the state of one job.
func (w *PageWriter) Job(s line.JobState) {
	w.add(s.Slot, s.Arrival, s.Before, s.Jobs, s.Queue, s.Timer)
}

// Waiters writes the jobs of a lane, for LinesLists their number before them.
func (w *PageWriter) Waiters(jobs []line.Waiter, counted bool) {
	if counted {
		w.add(len(jobs))
	}
	for _, j := range jobs {
		w.add(j.ID, j.Arrival, integers(',', j.Costs...))
	}
}

// Standings writes an entry of LinesQueues: flows with their lanes, and the queue's tags. An empty queue has
// neither. jobs returns the waiting jobs of a lane.
func (w *PageWriter) Standings(q line.QueueSnapshot, jobs func(lane string) []line.Waiter) {
	w.add(len(q.Flows))
	for _, f := range q.Flows {
		w.add(f.Flow, f.Tag, len(f.Lanes))
		for _, l := range f.Lanes {
			waiters := jobs(l.Lane)
			w.add(l.Lane, l.Arrival, len(waiters), firstCosts(waiters))
		}
	}
	if q.Name == "" {
		w.add(0)
		return
	}
	w.add(1+len(q.Finish)+len(q.HadTurn)+len(q.Classes), tagVirtual, q.Virtual)
	for _, flow := range slices.Sorted(maps.Keys(q.Classes)) {
		w.add(tagClasses+flow, classTagsText(q.Classes[flow]))
	}
	for _, flow := range slices.Sorted(maps.Keys(q.Finish)) {
		w.add(flow, q.Finish[flow])
	}
	for _, flow := range q.HadTurn {
		w.add(tagHadTurn+flow, 1)
	}
}

func classTagsText(tags line.ClassTags) string {
	text := number(tags.Virtual)
	for _, tag := range tags.Tags {
		text += " " + number(tag)
	}
	return text
}

// firstCosts returns the costs of the first job of a lane.
func firstCosts(jobs []line.Waiter) string {
	if len(jobs) == 0 {
		return integer(0)
	}
	return integers(',', jobs[0].Costs...)
}
