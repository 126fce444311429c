package delivery

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// expectEvery is how often the ledger asks again when the last mail will start. While the end is far ahead, it asks
// less often: when an eighth of the remaining time has passed.
const (
	expectEvery = 5 * time.Second
	expectParts = 8
)

// plan is what was expected of the mails, and when. It is safe for concurrent use.
type plan struct {
	mu     sync.Mutex
	latest map[*campaign.Mail]throttle.Reservation
	expectations
}

// expectations are when mails were expected to start, on Redis' clock.
type expectations struct {
	first map[*campaign.Mail]time.Time // expected starts of mails enqueued at the beginning
	later map[*campaign.Mail]time.Time // expected starts of mails that arrived later, planned on their arrival
	ends  []expectedEnd
}

// expectedEnd is when the last mail was expected to start.
type expectedEnd struct{ at, last time.Time }

func newPlan() *plan {
	return &plan{
		latest:       make(map[*campaign.Mail]throttle.Reservation),
		expectations: expectations{first: make(map[*campaign.Mail]time.Time), later: make(map[*campaign.Mail]time.Time)},
	}
}

// foretold notes a forecast.
func (p *plan) foretold(told inspect.Forecast) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, expectedEnd{told.Now, told.Last})
}

// planned notes the plan of a mail that was enqueued, at the beginning or later.
func (p *plan) planned(m *campaign.Mail, told worker.Planned, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if told.Reservation.Outcome != 0 {
		p.latest[m] = told.Reservation
	}
	switch {
	case told.Start.IsZero():
	case later:
		p.later[m] = told.Start
	default:
		p.first[m] = told.Start
	}
}

// expect asks again when the last waiting mail will start.
func (p *plan) expect(ctx context.Context, quotas *throttle.Throttle, started map[*campaign.Mail]bool) error {
	p.mu.Lock()
	var waiting []throttle.Reservation
	for m, r := range p.latest {
		if !started[m] {
			r.Outcome = throttle.Waiting // it may be booked by now
			waiting = append(waiting, r)
		}
	}
	p.mu.Unlock()
	if len(waiting) == 0 {
		return nil
	}
	told, err := inspect.New(quotas).Expect(ctx, waiting)
	if err != nil {
		return fmt.Errorf("forecast: %w", err)
	}
	p.foretold(told)
	return nil
}

// last returns when the last mail is expected to start; zero if that is not known.
func (p *plan) last() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ends) == 0 {
		return time.Time{}
	}
	return p.ends[len(p.ends)-1].last
}

// again returns how long after an instant to ask again.
func (p *plan) again(now time.Time) time.Duration {
	return max(expectEvery, p.last().Sub(now)/expectParts)
}

// all returns a copy of the expectations so far.
func (p *plan) all() expectations {
	p.mu.Lock()
	defer p.mu.Unlock()
	return expectations{maps.Clone(p.first), maps.Clone(p.later), slices.Clone(p.ends)}
}

// forecast compares what was expected with what happened.
type forecast struct {
	// First compares the plans of the mails that were enqueued at the beginning with their
	// starts. A plan cannot know of later events: Undisturbed are the mails that started
	// before the first such event, which was at DisturbedS.
	First       deviation `json:"planned_at_the_beginning"`
	Undisturbed deviation `json:"undisturbed"`
	DisturbedS  float64   `json:"disturbed_s"`
	// Later compares the plans of the mails that arrived later.
	Later deviation `json:"planned_later"`
	// Ends are the forecasts of the last start among the mails known at the time; the first
	// was made before any mail was sent. EndS is the real last start; EndOffS is how much
	// later it is than the first forecast.
	Ends    []endExpected `json:"ends"`
	EndS    float64       `json:"end_s"`
	EndOffS float64       `json:"end_off_s"`
}

// deviation is how much earlier or later than expected mails started.
type deviation struct {
	Mails int     `json:"mails"`
	MeanS float64 `json:"mean_s"`
	MaxS  float64 `json:"max_s"`
}

type endExpected struct {
	AtS   float64 `json:"at_s"`
	LastS float64 `json:"last_s"`
}

// forecast returns nil if nothing was planned, or if the run did not come to its end.
func (r result) forecast() *forecast {
	if len(r.expected.ends) == 0 || r.interrupted || len(r.granted) == 0 {
		return nil
	}
	starts, disturbed := firstStarts(r.granted), r.disturbed()
	undisturbed := maps.Clone(r.expected.first)
	maps.DeleteFunc(undisturbed, func(m *campaign.Mail, _ time.Time) bool { return !starts[m].Before(disturbed) })
	f := &forecast{
		First: deviate(r.expected.first, starts), Undisturbed: deviate(undisturbed, starts), DisturbedS: r.since(disturbed),
		Later: deviate(r.expected.later, starts), EndS: r.since(r.end()),
		EndOffS: r.end().Sub(r.expected.ends[0].last).Seconds(),
	}
	for _, end := range r.expected.ends {
		f.Ends = append(f.Ends, endExpected{AtS: max(0, r.since(end.at)), LastS: r.since(end.last)})
	}
	return f
}

// disturbed returns when the first event happened that the plan could not know: a mail that came later, a pause, a step
// of a raised limit, a second attempt. Without such an event it returns the end of the run.
func (r result) disturbed() time.Time {
	first := r.end().Add(time.Microsecond)
	at := func(instant time.Time) {
		if instant.Before(first) {
			first = instant
		}
	}
	for m := range r.expected.later {
		at(r.outcomes[m.ID].arrived)
	}
	for _, p := range r.pauses {
		at(p.known)
	}
	for _, c := range r.law.Changes {
		if c.At.After(r.began) {
			at(c.At)
		}
	}
	seen := make(map[*campaign.Mail]bool)
	for _, g := range r.granted {
		if seen[g.mail] {
			at(g.start)
		}
		seen[g.mail] = true
	}
	return first
}

// deviate compares the expected starts with the real ones, for the mails that started.
func deviate(expected, starts map[*campaign.Mail]time.Time) deviation {
	var d deviation
	for m, instant := range expected {
		start, started := starts[m]
		if !started {
			continue
		}
		off := math.Abs(start.Sub(instant).Seconds())
		d.Mails++
		d.MeanS += off
		d.MaxS = max(d.MaxS, off)
	}
	if d.Mails > 0 {
		d.MeanS /= float64(d.Mails)
	}
	return d
}

func writeForecast(w io.Writer, f *forecast) {
	if f == nil {
		return
	}
	table := report.NewTable(w)
	fmt.Fprintln(table, "expected against real\tmails\tmean deviation\tat most")
	for _, row := range []struct {
		name string
		deviation
	}{
		{"planned at the beginning", f.First},
		{fmt.Sprintf("  undisturbed until %.2f s", f.DisturbedS), f.Undisturbed},
		{"planned later", f.Later},
	} {
		if row.Mails > 0 {
			fmt.Fprintf(table, "%s\t%5d\t%12.3f s\t%5.2f s\n", row.name, row.Mails, row.MeanS, row.MaxS)
		}
	}
	table.Flush()
	var asked, told []string
	for i, end := range f.Ends {
		if few := (len(f.Ends) + mostEnds - 1) / mostEnds; i%few == 0 {
			width := max(7, len(fmt.Sprintf("  %.1f", f.EndS)))
			asked = append(asked, fmt.Sprintf("%*.1f", width, end.AtS))
			told = append(told, fmt.Sprintf("%*.1f", width, end.LastS))
		}
	}
	fmt.Fprintf(w, "\nforecast at     %s s\nof the last at  %s s, it was at %.1f s: %+.1f s off the first\n\n",
		strings.Join(asked, ""), strings.Join(told, ""), f.EndS, f.EndOffS)
}

// mostEnds is how many forecasts are printed; the JSON has all.
const mostEnds = 12
