package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// keyPage is the page of one scope key.
type keyPage struct {
	instantNow
	Paused, Next time.Time
	Mode         throttle.Mode
	Weak         bool
	SetFor, Set  string // where the scope key's limits are set; until when, by whom and why
	Waiting      int64  // flows
	Rows         []keyRow
	History      chart
	Blocked      blocked
	WaitsFor     []flowRow
	WaitsMore    int    // for how many other scope keys its own jobs wait
	Line         string // how long its line is and may get, empty without a bound
	Own          int64  // waiting jobs of the flow, for any scope key
	OwnKnown     bool   // the scope key is a flow, and the line was read
	Answer, Help string // why the scope key's jobs wait, and what would let them start sooner
	Until        time.Time
	ownUnits     int64 // the units that the Own jobs take of the scope key's limits
	Changes      []changeRow
}

// blocked is the flows that wait under a scope key.
type blocked struct {
	Jobs int64
	Rows []flowRow
	More int
}

// keyPageOf returns the page of a scope key; nil until the scope key was read.
func keyPageOf(b *board, key scopeKey) any {
	s := b.keys[key]
	if s == nil {
		return nil
	}
	p := &keyPage{
		instantNow: instantNow{s.usage.Now}, Next: s.usage.Next, Mode: s.usage.Mode, Weak: s.usage.Mode != throttle.Enforce,
		SetFor: s.usage.SetFor, Set: b.setText(s.usage), Waiting: s.usage.Waiting, Line: view.LineText(s.usage),
		Rows: []keyRow{b.keyRow(key)}, History: chartOf(s.history),
	}
	if s.usage.Paused.After(s.usage.Now) {
		p.Paused = s.usage.Paused
	}
	here := b.line.blocked(key)
	p.Blocked = blocked{here.Jobs, b.flowRows(here), here.InAll - len(here.Rows)}
	if key.Scope == b.process.fair() {
		own := b.line.keysOf(key.Key)
		p.WaitsFor, p.Own, p.OwnKnown = b.flowRows(own), own.Jobs, !b.line.many
		p.WaitsMore = own.InAll - len(own.Rows)
		p.ownUnits = b.line.unitsOf(key.Key, key.Scope)
	}
	for _, c := range b.process.changes {
		if c.Scope == key.Scope && c.Key == key.Key && len(p.Changes) < mostFlows {
			p.Changes = append(p.Changes, b.changeRow(c))
		}
	}
	p.answer(b, s.usage, key)
	return p
}

// answer fills in what holds jobs back, until when, and what would let them start sooner.
func (p *keyPage) answer(b *board, u inspect.Usage, key scopeKey) {
	under := b.line.under[key]
	why, until := under.Waits(u, b.line.at)
	switch {
	case !p.Paused.IsZero() && !p.Weak:
		p.Answer, p.Until = "Paused: nothing starts under it", p.Paused
		p.Help = resume.help("it", false)
	case p.Blocked.Jobs > 0 || u.Waiting > 0:
		p.Answer, p.Until = fmt.Sprintf("%s for it (%s)", p.whoWaits(), cmp.Or(why, itsTurn)), until
		p.Help = remedyUnder(u).help("it", false)
		if view.Unpulled(under.Looked, b.line.at) != "" {
			p.Help = view.StartWorker
		}
	case p.Own > 0 && len(p.WaitsFor) > 0:
		p.ownWaits(b, u, key)
	default:
		p.Answer = "Nothing waits for it"
	}
}

// ownWaits is answer for a flow whose jobs wait for other scope keys.
func (p *keyPage) ownWaits(b *board, u inspect.Usage, key scopeKey) {
	first := p.WaitsFor[0]
	other := strings.TrimSpace(first.For.Scope + " " + name(first.For.Key))
	p.Answer = fmt.Sprintf("%d %s of %s in line, the next for %s", p.Own, view.Plural(p.Own, "job"),
		name(key.Key)+areWord(p.Own), other)
	toFirst := b.remedyOf(first.For)
	p.Help = toFirst.help(other, b.line.under[first.For].Flows > 1)
	if n := int64(len(p.WaitsFor) + p.WaitsMore - 1); n > 0 {
		p.Answer = fmt.Sprintf("%s and %d %s", p.Answer, n, view.Plural(n, "other"))
		p.Help = b.helpOfSeveral(p.WaitsFor)
	} else {
		p.Until = first.Until
	}
	if limit, wait := lastUnder(u, p.ownUnits); wait > 0 {
		p.Answer = fmt.Sprintf("%s; under its own %s the last of them cannot start before %s from now", p.Answer,
			limit, view.Span(wait))
		p.Until = time.Time{}
		own := "A higher limit of its own would help the last of them."
		if toFirst == resume || toFirst == hours {
			own = p.Help + " " + own
		}
		p.Help = own
	}
}

// lastUnder returns the limit that holds the last of these units back longest, and how long it does at least: the
// whole windows that are full of the units that have no room now. If the limits were set at run time and end before
// that, the wait does not count.
func lastUnder(u inspect.Usage, units int64) (longest throttle.Limit, wait time.Duration) {
	if u.Mode != throttle.Enforce {
		return longest, 0
	}
	for _, l := range u.Limits {
		if l.Limit.Units <= 0 || l.Limit.Window == 0 {
			continue
		}
		late := units - max(0, l.Limit.Units-l.Used-l.Booked)
		full := view.Times(l.Limit.Window, float64((late-1)/l.Limit.Units))
		if late > 0 && full > wait && (u.Ends.IsZero() || full < u.Ends.Sub(u.Now)) {
			longest, wait = l.Limit, full
		}
	}
	return longest, wait
}

// whoWaits says how many jobs and flows wait. Without the jobs, the line is too long to be read, or was read before the
// flows came.
func (p *keyPage) whoWaits() string {
	flows := view.Many(p.Waiting, "flow")
	if p.Blocked.Jobs == 0 {
		return flows + waitWord(p.Waiting)
	}
	return view.Many(p.Blocked.Jobs, "job") + " of " + flows + waitWord(p.Blocked.Jobs)
}

func waitWord(n int64) string {
	if n == 1 {
		return " waits"
	}
	return " wait"
}

func areWord(jobs int64) string {
	if jobs == 1 {
		return " is"
	}
	return " are"
}

// try shows what limits would have held back, or why they cannot be set; it changes nothing.
func (h *Handler) try(ctx context.Context, f *frame, query url.Values) int {
	b := h.hub.board(ctx, nil)
	if b.throttle == nil {
		return http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	entered, err := h.formOf(ctx, query)
	if err != nil {
		f.Refused = problem(err)
		return http.StatusServiceUnavailable
	}
	limits, _, err := limitsEntered(b.throttle, f.Of, entered)
	if err != nil {
		f.Refused = problem(err)
		return http.StatusBadRequest
	}
	u, err := b.throttle.Usage(ctx, f.Of.Scope, f.Of.Key)
	if err != nil {
		f.Refused = problem(err)
		return http.StatusServiceUnavailable
	}
	tried, err := view.Try(ctx, b.throttle, []inspect.Usage{u}, limits)
	if err != nil {
		f.Refused = problem(err)
		return http.StatusServiceUnavailable
	}
	now, _, err := limitsOf(ctx, b.throttle, f.Of, f.Scopes)
	if err != nil {
		f.Refused = problem(err)
		return http.StatusServiceUnavailable
	}
	f.Tried, f.Lifted = tried, view.LimitTexts(view.Lifted(now.inForce, limits))
	return http.StatusOK
}
