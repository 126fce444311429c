package throttle

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Explanation is all that is known of one job that has not started, and of the limits
// that concern it. Its String is one screen of text for people. All instants are on
// Redis' clock.
type Explanation struct {
	// Job is the job's ID, Now the instant of the answer.
	Job string
	Now time.Time
	// Slot is what it is booked for; zero if it is not.
	Slot time.Time
	// Arrived is since when it waits in line; zero if it does not. Before it are so many
	// of the Waiting jobs of its lane.
	Arrived         time.Time
	Before, Waiting int64
	// Blocked is the scope key under which its lane stands, with no limit and no units;
	// nil if the job does not wait. It is looked at again at Looked.
	Blocked *Hold
	Looked  time.Time
	// Expected is when the job is expected to start; zero if that is not known.
	Expected time.Time
	// Usage is how the scope keys stand that concern the job.
	Usage []Usage
}

// Explain tells what is known of a job, which is asked for by the ID, Weight, Costs and
// Keys that it was reserved with. It changes nothing. It blocks for two round trips, for
// a job in line as Forecast does, and fails as Peek does.
func (t *Throttle) Explain(ctx context.Context, job Job) (Explanation, error) {
	o, err := t.order(ctx, job)
	if err != nil {
		return Explanation{}, err
	}
	reply, err := t.redis.run(ctx, linesScript, t.linesArguments("job", job.ID, o.lane))
	if err != nil {
		return Explanation{}, withJob(err, job)
	}
	e, err := o.explanation(arrayOf("lines", reply))
	if err != nil || len(o.charges) == 0 {
		return e, err
	}
	names := make([]string, len(o.charges))
	for i := range o.charges {
		names[i] = o.charges[i].name
	}
	accounts, err := t.usage(ctx, usageTotals, names...)
	if err != nil {
		return Explanation{}, withJob(err, job)
	}
	for i := range accounts {
		accounts[i].Key = o.charges[i].key // of a very long one Redis has only the hash
		e.Usage = append(e.Usage, accounts[i].Usage)
	}
	return t.expected(ctx, e)
}

// expected adds when a job in line is expected to start.
func (t *Throttle) expected(ctx context.Context, e Explanation) (Explanation, error) {
	if e.Arrived.IsZero() || !e.Slot.IsZero() {
		e.Expected = e.Slot
		return e, nil
	}
	forecast, err := Driver{t}.Expect(ctx, []Reservation{{Job: Job{ID: e.Job}, Outcome: Waiting}})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return e, nil
	case err != nil:
		return Explanation{}, err
	}
	e.Expected = forecast.Starts[0]
	return e, nil
}

// explanation reads what lines says of one job: its slot, its arrival, how many jobs are
// before it and how many there are in its lane, the scope key that the lane stands under,
// and that one's timer.
func (o *order) explanation(v *values) (Explanation, error) {
	e := Explanation{Job: o.job.ID, Now: v.instant(), Slot: v.instant(), Arrived: v.instant(), Before: v.natural(), Waiting: v.natural()}
	if name := v.text(); name != "" {
		scope, key, is := splitName(name)
		v.wrong = v.wrong || !is
		e.Blocked = &Hold{Scope: scope, Key: key}
	}
	e.Looked = v.instant()
	return e, v.end()
}

// String is one screen of text.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s at %s\n", jobText(e.Job), e.Now.UTC().Format(clockFormat))
	e.writeJob(&b)
	for _, u := range e.Usage {
		if u.Paused.After(e.Now) {
			fmt.Fprintf(&b, "  %s paused until %s (%s)\n", scopeKeyText(u.Scope, u.Key), u.Paused.UTC().Format(clockFormat), e.in(u.Paused))
		}
		for _, l := range u.Limits {
			fmt.Fprintf(&b, "  %-24s %-16s %8d used %8d booked  %s%s\n",
				scopeKeyText(u.Scope, u.Key), l.Limit, l.Used, l.Booked, e.roomText(l), originText(u))
		}
	}
	return b.String()
}

const clockFormat = "2006-01-02 15:04:05.000 MST"

func (e Explanation) writeJob(b *strings.Builder) {
	switch {
	case !e.Slot.IsZero():
		fmt.Fprintf(b, "  booked for %s (%s)\n", e.Slot.UTC().Format(clockFormat), e.in(e.Slot))
	case !e.Arrived.IsZero():
		fmt.Fprintf(b, "  in line since %s, %d of %d jobs before it, expected to start %s\n",
			e.Arrived.UTC().Format(clockFormat), e.Before, e.Waiting, e.in(e.Expected))
		if e.Blocked != nil {
			fmt.Fprintf(b, "  its lane stands under %s, which is looked at again %s\n", scopeKeyText(e.Blocked.Scope, e.Blocked.Key), e.in(e.Looked))
		}
	default:
		b.WriteString("  nothing is known of it: it never asked, was given back, or has started\n")
	}
}

// in says how far an instant is from now.
func (e Explanation) in(at time.Time) string {
	switch d := at.Sub(e.Now).Round(time.Millisecond); {
	case at.IsZero():
		return "never, unless limits change"
	case d < 0:
		return formatDuration(-d) + " ago"
	default:
		return "in " + formatDuration(d)
	}
}

func (e Explanation) roomText(l LimitUsage) string {
	switch {
	case l.Free.IsZero():
		return "closed"
	case l.Free.After(e.Now):
		return "room " + e.in(l.Free)
	}
	return "room now"
}

// mostOfID is how much of a job's ID is shown.
const mostOfID = 128

// jobText is an ID that a screen can show: quoted if it is not plain, and not without end.
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
	if u.Mode != Enforce {
		text += ", " + u.Mode.String()
	}
	return text
}
