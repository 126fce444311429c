package inspect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/lanes"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Explanation is all that is known of one job that has not started, and of the limits
// that concern that job. Its String is one screen of text for people. All instants are on
// Redis' clock.
type Explanation struct {
	// Job is the job's ID, Now the instant of the answer.
	Job string
	Now time.Time
	// Priority is the job's priority; 0 for a job that does not wait and of which only the ID was given.
	Priority int
	// Costs are the units that the job takes, by scope; empty if nothing is known of the job.
	Costs map[string]int64
	// Slot is the slot of a booked job; zero if the job is not booked.
	Slot time.Time
	// Arrived is when a waiting job came; zero if the job does not wait. Waiting is how many jobs
	// are in its lane, and Before how many of them are ahead of this job, -1 if the lane is too long
	// to search. For a job that did not come to its slot Arrived is set and Waiting is 0: when the
	// job asks again, it goes to the front of its lane.
	Arrived         time.Time
	Before, Waiting int64
	// Blocked is the scope key under which the job's lane stands, without a limit or units; nil
	// if the job does not wait. A pull looks at that scope key again at Looked.
	Blocked *throttle.Hold
	Looked  time.Time
	// Expected is when the job is expected to start; zero if that is not known. Guessed is true
	// if Expected is an estimate from the limits and the number of flows alone, because too many
	// jobs wait for a forecast.
	Expected time.Time
	Guessed  bool
	// Usage is the state of the scope keys that concern the job.
	Usage []Usage
	// Lanes are all lanes in which jobs wait, as Inspector.Lanes returns them; nil if the job does not wait, or if
	// more lanes or jobs wait than Forecast reads.
	Lanes []Lane
}

// Explain returns all that is known of a job. Pass the ID, Weight, Costs, Keys and Priority that
// the job was reserved with. Explain changes nothing. It blocks for two round trips, or for a waiting job
// for as long as Forecast does, and fails as Peek does. If more jobs wait than Forecast reads, Expected is
// zero.
func (t *Inspector) Explain(ctx context.Context, job throttle.Job) (Explanation, error) {
	o, err := t.order(ctx, job)
	if err != nil {
		return Explanation{}, err
	}
	e, err := t.explain(ctx, o)
	if err != nil || e.Waiting == 0 {
		return e, err
	}
	r, err := t.readLanes(ctx)
	switch {
	case errors.Is(err, lanes.ErrTooMany):
		return e, nil
	case err == nil:
		err = r.inLine(ctx, o, &e)
	}
	if err != nil {
		return Explanation{}, withJob(err, job)
	}
	return e, nil
}

// explain returns what is known of a job, except the expected start of a waiting job.
func (t *Inspector) explain(ctx context.Context, o *order) (Explanation, error) {
	job := o.job
	p, err := t.page(ctx, wire.LinesJob, "", job.ID, o.Lane)
	if err != nil {
		return Explanation{}, withJob(err, job)
	}
	e, err := o.explanation(p)
	if err != nil || len(o.Charges) == 0 {
		return e, err
	}
	names := make([]string, len(o.Charges))
	e.Costs = make(map[string]int64, len(o.Charges))
	for i := range o.Charges {
		names[i] = o.Charges[i].Name
		e.Costs[o.Charges[i].Scope] = o.Charges[i].Units
	}
	accounts, err := t.usage(ctx, wire.Usage{Names: names})
	if err != nil {
		return Explanation{}, withJob(err, job)
	}
	for i := range accounts {
		accounts[i].Key = o.Charges[i].Key // Redis has only the hash of a very long key
		e.Usage = append(e.Usage, accounts[i].Usage)
	}
	e.Expected = e.Slot
	return e, nil
}

// inLine adds all lanes, the position of a waiting job in a long lane, and its expected start.
func (r *reader) inLine(ctx context.Context, o *order, e *Explanation) error {
	e.Lanes = r.lanes()
	if err := r.readJobs(ctx, nil); err != nil {
		return err
	}
	for _, lane := range r.Snapshot.Lanes {
		for i := range lane.Jobs {
			if lane.Name == o.Lane && lane.Jobs[i].ID == o.job.ID {
				e.Before, e.Arrived = int64(i), wire.Instant(lane.Jobs[i].Arrival)
			}
		}
	}
	_, starts, err := r.play(ctx, []string{o.job.ID})
	e.Expected = wire.Instant(starts[o.job.ID])
	return err
}

// blocked returns a hold that names only a scope key.
func (o *order) blocked(name string) *throttle.Hold {
	scope, key, _ := wire.SplitScopeKey(name)
	if c := o.charged(name); c != nil {
		key = c.Key // Redis has only the hash of a very long key
	}
	return &throttle.Hold{Scope: scope, Key: key}
}

// explanation reads the answer of the script lines for one job: its slot, its arrival, how many jobs are before
// it, how many are in its lane, and the queue that the lane stands in, with the queue's timer.
func (o *order) explanation(p *wire.Page) (Explanation, error) {
	known := p.Job()
	if p.Err() != nil {
		return Explanation{}, badReply("lines")
	}
	e := Explanation{Job: o.job.ID, Priority: o.job.Priority, Now: wire.Instant(p.Now), Slot: wire.Instant(known.Slot),
		Arrived: wire.Instant(known.Arrival), Before: known.Before, Waiting: known.Jobs, Looked: wire.Instant(known.Timer)}
	if known.Queue != "" {
		e.Blocked = o.blocked(known.Queue)
	}
	return e, nil
}

// String returns one screen of text.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s at %s\n", jobText(e.Job), e.Now.UTC().Format(clockFormat))
	e.writeJob(&b)
	for _, u := range e.Usage {
		if u.Paused.After(e.Now) {
			fmt.Fprintf(&b, "  %s paused until %s (%s)%s\n", scopeKeyText(u.Scope, u.Key),
				u.Paused.UTC().Format(clockFormat), e.in(u.Paused), modeText(u.Mode))
		}
		if u.Served < 1 {
			fmt.Fprintf(&b, "  %s is served %s of its limits by the upstream\n", scopeKeyText(u.Scope, u.Key),
				partText(u.Served))
		}
		for _, l := range u.Limits {
			if hours := l.HoursText(e.Now); hours != "" {
				fmt.Fprintf(&b, "  %-24s %-16s %s%s%s\n", scopeKeyText(u.Scope, u.Key), l.Limit, hours, e.untilText(l),
					originText(u))
				continue
			}
			fmt.Fprintf(&b, "  %-24s %-16s %8d used %8d booked  %s%s\n",
				scopeKeyText(u.Scope, u.Key), l.Limit, l.Used, l.Booked, e.roomText(u.Mode, l), originText(u))
			e.writeAnew(&b, l)
		}
	}
	return b.String()
}

const clockFormat = "2006-01-02 15:04:05.000 MST"

func (e Explanation) writeJob(b *strings.Builder) {
	switch {
	case !e.Slot.IsZero():
		fmt.Fprintf(b, "  booked for %s (%s)\n", e.Slot.UTC().Format(clockFormat), e.in(e.Slot))
	case e.Waiting > 0:
		fmt.Fprintf(b, "  in line since %s%s, %s of %d jobs before it, expected to start %s%s\n",
			e.arrivedText(), e.priorityText(), e.beforeText(), e.Waiting, e.guessText(), e.expectedText())
		e.writeQueue(b)
	case !e.Arrived.IsZero():
		b.WriteString("  it did not come to its slot; when it asks again, it comes to the front of its lane\n")
	default:
		b.WriteString("  nothing is known of it: it never asked, was given back, or has started\n")
	}
}

// writeQueue writes where the job's lane stands.
func (e Explanation) writeQueue(b *strings.Builder) {
	if e.Blocked == nil {
		return
	}
	under := scopeKeyText(e.Blocked.Scope, e.Blocked.Key)
	fmt.Fprintf(b, "  its lane stands under %s, which is looked at again %s\n", under, e.in(e.Looked))
}

// arrivedText and beforeText also have a text for a job so far back in its lane that Explain did not find it.
func (e Explanation) arrivedText() string {
	if e.Arrived.IsZero() {
		return "some time"
	}
	return e.Arrived.UTC().Format(clockFormat)
}

func (e Explanation) priorityText() string {
	if e.Priority == 0 {
		return ""
	}
	return " with priority " + strconv.Itoa(e.Priority)
}

func (e Explanation) beforeText() string {
	if e.Before < 0 {
		return fmt.Sprintf("more than %d", mostOnPage)
	}
	return strconv.FormatInt(e.Before, 10)
}

func (e Explanation) guessText() string {
	if e.Guessed && !e.Expected.IsZero() {
		return "about "
	}
	return ""
}

// expectedText distinguishes a start that never comes from one that is not known.
func (e Explanation) expectedText() string {
	if e.Expected.IsZero() && slices.ContainsFunc(e.Usage, Usage.isClosed) {
		return "never, unless limits change"
	}
	return e.in(e.Expected)
}

// in writes how far an instant is from the instant of the answer.
func (e Explanation) in(at time.Time) string {
	switch d := at.Sub(e.Now).Round(time.Millisecond); {
	case at.IsZero():
		return "at a time that is not known"
	case d < 0:
		return wire.Duration(-d) + " ago"
	default:
		return "in " + wire.Duration(d)
	}
}

func (e Explanation) roomText(mode throttle.Mode, l LimitUsage) string {
	switch {
	case mode != throttle.Enforce:
		return "nothing is delayed"
	case l.Free.IsZero():
		return "closed"
	case l.Free.After(e.Now):
		return "room " + e.in(l.Free)
	}
	return "room now"
}

// untilText writes how far ahead it is that hours open or close.
func (e Explanation) untilText(l LimitUsage) string {
	if l.Anew.IsZero() {
		return ""
	}
	return " (" + e.in(l.Anew) + ")"
}

// writeAnew writes the units of a ramp, and when a quota begins anew, by the clock of its zone.
func (e Explanation) writeAnew(b *strings.Builder, l LimitUsage) {
	zone, err := time.LoadLocation(l.Limit.Zone())
	if l.Anew.IsZero() || err != nil {
		return
	}
	if l.Limit.Ramp != "" {
		fmt.Fprintf(b, "    %d units in force\n", l.Units)
	}
	fmt.Fprintf(b, "    begins anew on %s (%s)\n", l.Anew.In(zone).Format("Mon 2006-01-02 15:04 MST"), e.in(l.Anew))
}

// partText writes a served share in percent, with one decimal.
func partText(part float64) string {
	return strconv.FormatFloat(math.Round(part*wire.Thousandths)/10, 'f', -1, 64) + " %"
}

// mostOfID is how much of a job's ID is shown.
const mostOfID = 128

// jobText writes an ID for a screen: quoted if it is not plain, and cut if it is long.
func jobText(id string) string {
	rest := ""
	if len(id) > mostOfID {
		id, rest = id[:mostOfID], "…"
	}
	if quoted := strconv.Quote(id); quoted != `"`+id+`"` {
		id = quoted
	}
	return id + rest
}

// mostOfKey is how much of a key is shown.
const mostOfKey = 24

func scopeKeyText(scope, key string) string {
	if key == "" {
		return scope
	}
	if runes := []rune(key); len(runes) > mostOfKey {
		return fmt.Sprintf("%s %q…", scope, string(runes[:mostOfKey]))
	}
	return fmt.Sprintf("%s %q", scope, key)
}

func originText(u Usage) string {
	text := ""
	if u.SetFor != "" {
		text = ", set for the " + u.SetFor
	}
	if !u.Ends.IsZero() {
		text += " until " + u.Ends.UTC().Format(clockFormat)
	}
	return text + modeText(u.Mode)
}

// modeText names a mode that delays nothing.
func modeText(mode throttle.Mode) string {
	if mode == throttle.Enforce {
		return ""
	}
	return ", " + mode.String()
}
