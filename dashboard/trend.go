package dashboard

import (
	"fmt"
	"strconv"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

const (
	mostFields = 48
	// carried is how long a note stays valid if no later one comes.
	carried = 10 * time.Minute
)

// spans are the hours that a chart of the backlog may show: the shortest one with all notes is
// used.
var spans = []int{1, 3, 6, 12}

// backlogChart is the backlog of the last hours.
type backlogChart struct {
	Title  string
	From   time.Time
	Width  int
	Trends []trend // none where nothing has waited

	field time.Duration // how long each part of the span is
}

// trend is one quantity over the span. A field without a note has no bar.
type trend struct {
	What, Now, Most string
	Bars            []chartBar
}

// backlogOf draws the notes of the backlog; nil without notes.
func backlogOf(noted []inspect.Backlog, now time.Time) *backlogChart {
	hours := hoursOf(noted, now)
	span := time.Duration(hours) * time.Hour
	c := &backlogChart{
		Title: fmt.Sprintf("Over the last %d hours", hours), From: now.Add(-span),
		Width: 10 * mostFields, field: span / mostFields,
	}
	if hours == 1 {
		c.Title = "Over the last hour"
	}
	fields := c.fields(noted, now)
	if len(fields) == 0 {
		return nil
	}
	var last *inspect.Backlog // the note of right now
	if b := noted[len(noted)-1]; now.Sub(b.At) <= carried {
		last = &b
	}
	jobs := trendOf("Jobs in line", fields, last, func(b inspect.Backlog) int64 { return b.Jobs }, jobsText)
	waited := trendOf("Longest wait", fields, last, func(b inspect.Backlog) int64 { return int64(b.Waited) }, waitText)
	if len(jobs.Bars) > 0 {
		c.Trends = []trend{jobs, waited}
	}
	return c
}

// hoursOf returns how many hours the chart shows.
func hoursOf(noted []inspect.Backlog, now time.Time) int {
	for _, hours := range spans {
		if len(noted) > 0 && now.Sub(noted[0].At) <= time.Duration(hours)*time.Hour {
			return hours
		}
	}
	return spans[len(spans)-1]
}

// fields returns the largest value of each quantity in each part of the span that has a note.
func (c *backlogChart) fields(noted []inspect.Backlog, now time.Time) map[int]inspect.Backlog {
	fields := make(map[int]inspect.Backlog)
	for i, b := range noted {
		if b.At.After(now) { // the clock was set back since
			continue
		}
		end := b.At.Add(carried)
		if i+1 < len(noted) && noted[i+1].At.Before(end) {
			end = noted[i+1].At
		}
		if end.After(now) {
			end = now
		}
		for n := c.fieldAt(b.At); n <= c.fieldAt(end); n++ {
			if n < 0 {
				continue
			}
			most := fields[n]
			if most.Jobs >= 0 && (b.Jobs < 0 || b.Jobs > most.Jobs) {
				most.Jobs = b.Jobs
			}
			most.Waited = max(most.Waited, b.Waited)
			fields[n] = most
		}
	}
	return fields
}

// fieldAt returns the part of the span that contains an instant; the last part includes the end of
// the span.
func (c *backlogChart) fieldAt(at time.Time) int {
	return min(mostFields-1, int(at.Sub(c.From)/c.field))
}

// trendOf draws one quantity; a negative value means that there were too many to count. It draws no bars if all
// values are 0.
func trendOf(
	what string, fields map[int]inspect.Backlog, last *inspect.Backlog,
	of func(inspect.Backlog) int64, text func(int64) string,
) trend {
	t := trend{What: what, Now: "not noted"}
	if last != nil {
		t.Now = text(of(*last))
	}
	most, over := int64(0), false
	for _, b := range fields {
		most, over = max(most, of(b)), over || of(b) < 0
	}
	if most == 0 && !over {
		return t
	}
	t.Most = text(most)
	if over {
		t.Most = text(-1)
	}
	for n := range mostFields {
		b, is := fields[n]
		if !is {
			continue
		}
		part := 1.0
		if of(b) >= 0 {
			part = max(0.01, float64(of(b))/float64(max(1, most)))
		}
		t.Bars = append(t.Bars, barAt(n, part, text(of(b))))
	}
	return t
}

func jobsText(n int64) string {
	if n < 0 {
		return "more than is counted"
	}
	return strconv.FormatInt(n, 10)
}

func waitText(n int64) string { return view.Span(time.Duration(n)) }
