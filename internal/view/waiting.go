package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// By is how Lines groups lanes.
type By string

// The groups that a row may stand for.
const (
	ByKey  By = "key"  // the scope key that has no room
	ByFlow By = "flow" // the key of the fair scope that waits
	ByLane By = "lane" // jobs with the same scope keys and priority
)

// Row is a group of waiting jobs.
type Row struct {
	// Flow and Keys are the jobs' own; empty if the row has jobs of several.
	Flow string            `json:"flow,omitempty"`
	Keys map[string]string `json:"keys,omitempty"`
	Lane string            `json:"lane,omitempty"`
	// Priority is the priority of a lane's jobs.
	Priority int `json:"priority,omitempty"`
	// Scope and Key name the scope key that has no room for the oldest job. Others is how many other scope keys the
	// row's jobs wait for.
	Scope  string `json:"scope"`
	Key    string `json:"key,omitempty"`
	Others int    `json:"others,omitempty"`
	Flows  int    `json:"flows"`
	Lanes  int    `json:"lanes"`
	Jobs   int64  `json:"jobs"`
	// Since is when the oldest of the lanes' first jobs came; zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Why is the pause or the limit. Until is when the pause ends, or the limit has room for one
	// unit or, if it is 0, ends by itself; zero if no time brings that about. See Leased.
	Why   string    `json:"why,omitempty"`
	Until time.Time `json:"until,omitzero"`

	// Looked is when a pull has to look at the scope key of the oldest job; zero if that is not known.
	Looked time.Time `json:"-"`

	flows map[string]bool
	under map[[2]string]bool // the scope keys for which its jobs wait
}

// Waiting is all waiting jobs in rows, the oldest first.
type Waiting struct {
	Throttle string    `json:"throttle"`
	Now      time.Time `json:"now"` // on Redis' clock
	By       By        `json:"by"`
	Lanes    int       `json:"lanes"`
	Flows    int       `json:"flows"`
	Jobs     int64     `json:"jobs"`
	Rows     []Row     `json:"rows"` // the first of InAll
	InAll    int       `json:"rows_in_all"`
}

// Filter selects lanes: those of a flow, and those that wait for a scope or one of its keys. An
// empty field selects all.
type Filter struct{ Flow, Scope, Key string }

func (f Filter) has(l inspect.Lane) bool {
	return (f.Flow == "" || f.Flow == l.Flow) && (f.Scope == "" || f.Scope == l.Scope) && (f.Key == "" || f.Key == l.Key)
}

// Lines reads which jobs wait, for what and until when. It returns no more rows than most.
func Lines(ctx context.Context, th *inspect.Inspector, by By, filter Filter, most int) (Waiting, error) {
	lanes, err := th.Lanes(ctx)
	if err != nil {
		return Waiting{}, err
	}
	return linesOf(ctx, th, lanes, by, filter, most)
}

func linesOf(ctx context.Context, th *inspect.Inspector, lanes []inspect.Lane, by By, filter Filter,
	most int) (Waiting, error) {
	w := Rows(lanes, by, filter, most)
	w.Throttle = th.Name()
	err := w.explain(ctx, th)
	return w, err
}

// Rows groups lanes, without why they wait and when they were read.
func Rows(lanes []inspect.Lane, by By, filter Filter, most int) Waiting {
	w := Waiting{By: by, Rows: []Row{}}
	rows, flows := make(map[string]*Row), make(map[string]bool)
	for _, l := range lanes {
		if !filter.has(l) {
			continue
		}
		flows[l.Flow] = true
		w.Lanes++
		w.Jobs += l.Jobs
		add(rows, by, l)
	}
	w.Flows, w.InAll = len(flows), len(rows)
	for _, r := range rows {
		r.Flows, r.Others = len(r.flows), len(r.under)-1
		w.Rows = append(w.Rows, *r)
	}
	slices.SortFunc(w.Rows, older)
	w.Rows = w.Rows[:min(most, len(w.Rows))]
	return w
}

// add adds a lane to its row. The caller adds the oldest lane first.
func add(rows map[string]*Row, by By, l inspect.Lane) {
	name := l.Name
	switch by {
	case ByKey:
		name = l.Scope + ":" + l.Key
	case ByFlow:
		name = l.Flow
	}
	r := rows[name]
	if r == nil {
		r = &Row{Scope: l.Scope, Key: l.Key, Looked: l.Looked, flows: make(map[string]bool), under: make(map[[2]string]bool)}
		rows[name] = r
		switch by {
		case ByFlow:
			r.Flow = l.Flow
		case ByLane:
			r.Flow, r.Keys, r.Lane, r.Priority = l.Flow, l.Keys, l.Name, l.Priority
		}
	}
	if r.Since.IsZero() {
		r.Since = l.Since
	}
	r.flows[l.Flow], r.under[[2]string{l.Scope, l.Key}] = true, true
	r.Lanes++
	r.Jobs += l.Jobs
}

// older sorts rows by how long they have waited, the rows of unknown times last.
func older(a, b Row) int {
	if a.Since.IsZero() != b.Since.IsZero() {
		return b.Since.Compare(a.Since)
	}
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Flow, b.Flow), cmp.Compare(a.Lane, b.Lane))
}

// explain fills in why the scope key of each row has no room, and until when.
func (w *Waiting) explain(ctx context.Context, th *inspect.Inspector) error {
	known := make(map[[2]string]inspect.Usage)
	for i := range w.Rows {
		r := &w.Rows[i]
		name := [2]string{r.Scope, r.Key}
		u, is := known[name]
		if !is {
			var err error
			if u, err = th.Usage(ctx, r.Scope, r.Key); err != nil {
				return err
			}
			known[name], w.Now = u, u.Now
		}
		r.Why, r.Until = r.Waits(u, u.Now)
	}
	if w.Now.IsZero() {
		page, err := th.Lines(ctx, "")
		w.Now = page.Now
		return err
	}
	return nil
}

// Waits returns what the row's oldest job waits for, and until when, by the state of its scope key: for a worker that
// pulls, or for room. read is when the line was read.
func (r Row) Waits(u inspect.Usage, read time.Time) (text string, until time.Time) {
	if text = Unpulled(r.Looked, read); text != "" {
		return text, time.Time{}
	}
	return Why(u)
}

// patience is how long after its time a scope key may stand without a look: workers pull several times a second.
const patience = 30 * time.Second

// StartWorker says what helps where no worker pulls.
const StartWorker = "Start a worker, or look at its log."

// Unpulled says for how long no worker has looked at a line at which a pull had to look at a time; empty if a worker
// pulls, or if the time is not known.
func Unpulled(looked, now time.Time) string {
	if looked.IsZero() || now.Sub(looked) <= patience {
		return ""
	}
	return "no worker has looked at the line for " + Span(now.Sub(looked))
}

// Leased reports whether a limit, or a text that begins with a limit, is a running limit: it has
// room as soon as a job gives its place back, at the latest when a lease ends.
func Leased(limit string) bool { return strings.Contains(limit, "/running") }

// Why returns what holds jobs back under a scope key, and until when; zero if no time brings that
// about. In shadow and off nothing does, and the text is empty.
func Why(u inspect.Usage) (text string, until time.Time) {
	if u.Mode != throttle.Enforce {
		return "", time.Time{}
	}
	if u.Paused.After(u.Now) {
		return "paused", u.Paused
	}
	for _, l := range u.Limits {
		switch {
		case l.Limit.Units == 0 || l.Limit.Ramp != "" && l.Free.IsZero(): // held before it begins
			return "closed by " + l.Limit.String() + termText(u), u.Ends
		case l.Limit.Hours != "" && l.Free.After(u.Now) && l.Free.After(until):
			text, until = HoursText(l, u.Now), l.Free
		case l.Limit.Units == throttle.Unlimited: // so are open hours
		case l.Free.After(until):
			text, until = fmt.Sprintf("%s, %d used, %d booked", UseText(l), l.Used, l.Booked), l.Free
		}
	}
	if served := ServedText(u.Served); served != "" && text != "" {
		text += ", " + served
	}
	if text != "" {
		text += termText(u)
	}
	return text, until
}

// termText says, after a comma, whether limits are set for the key or for the scope, and until when. It is empty for
// configured limits.
func termText(u inspect.Usage) string {
	if set := SetText(u.SetFor, u.Ends, Clock); set != "" {
		return ", " + set
	}
	return ""
}

// HoursHold reports whether closed hours hold jobs back longest under a scope key: a higher limit would not help then.
func HoursHold(u inspect.Usage) bool {
	if u.Mode != throttle.Enforce {
		return false
	}
	hold, until := false, u.Now
	for _, l := range u.Limits {
		switch {
		case l.Free.IsZero(): // closed by its limit
			return false
		case l.Free.After(until):
			hold, until = l.Limit.Hours != "", l.Free
		}
	}
	return hold
}
