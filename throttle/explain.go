package throttle

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Explanation is all that is known of one job, and of the limits that it meets. Its
// String is one screen of text for people. All instants are on Redis' clock.
type Explanation struct {
	// Job is the job's ID, Now the instant of the answer.
	Job string
	Now time.Time
	// Granted is the start of its grant; zero if none is known any more: a grant is
	// for a minute, a settled one for Options.SettleWithin. Charged are its units,
	// Settled tells that they are what the job really took.
	Granted time.Time
	Charged int64
	Settled bool
	// Slot is what it is booked for; zero if it is not. Hold is what held it back then.
	Slot time.Time
	Hold *Hold
	// Arrived is since when it waits in line; zero if it does not. Before it are so many
	// of the jobs of its lane, who weigh Units in all; the lane is set aside until Aside,
	// zero if it is not. Expected is when the job is expected to start.
	Arrived         time.Time
	Before, Waiting int64
	Units           int64
	Aside           time.Time
	Expected        time.Time
	// Closed is the pause, or the limit of 0, that closes the job's scope keys the
	// longest; nil if nothing does.
	Closed *Hold
	// Limits are those that the job meets.
	Limits []LimitState
}

// LimitState is a limit that a job meets, and how it stands.
type LimitState struct {
	Scope, Key string
	LimitUsage
	// Origin tells where the limit comes from, Mode whether it is in force.
	Origin Origin
	Mode   Mode
}

// Explain tells what is known of a job, which is asked for by the ID, Weight and Keys
// that it was reserved with. It changes nothing. It blocks for one round trip, for a job
// in line as Forecast does, and fails as Peek does.
func (t *Throttle) Explain(ctx context.Context, job Job) (Explanation, error) {
	c, err := t.callFor(ctx, job)
	if err != nil {
		return Explanation{}, err
	}
	reply, err := t.ask(ctx, explainScript, c, func() ([]string, []any) {
		return c.keys, c.args(t.nowArgument(), c.names, c.belief, integers(job.Weight, t.options.Grace.Microseconds()), string(c.lane), job.ID)
	})
	switch {
	case err != nil:
		return Explanation{}, withJob(err, job)
	case !reply.is(strings.Repeat("i", 13+3*len(c.holds))):
		return Explanation{}, badReply("explain", reply)
	}
	e := c.explanation(job, reply)
	if e.Arrived.IsZero() {
		return e, nil
	}
	expected, err := t.Expect(ctx, []Reservation{{Job: job, Outcome: Waiting}})
	if err != nil {
		return Explanation{}, err
	}
	e.Expected = expected.Starts[0]
	return e, nil
}

// explanation reads the reply of explain.lua.
func (c *call) explanation(job Job, reply reply) Explanation {
	e := Explanation{
		Job: job.ID, Now: time.UnixMicro(reply.integer(0)),
		Granted: instant(reply.integer(3)), Charged: reply.integer(4), Settled: reply.integer(5) == 1,
		Slot: instant(reply.integer(6)), Arrived: instant(reply.integer(8)),
		Before: reply.integer(9), Waiting: reply.integer(10), Units: reply.integer(11), Aside: instant(reply.integer(12)),
	}
	if !e.Slot.IsZero() {
		if e.Hold = c.hold(reply.integer(7)); e.Hold != nil {
			e.Hold.Until = e.Slot
		}
	}
	if e.Closed = c.hold(reply.integer(1)); e.Closed != nil {
		e.Closed.Until = instant(reply.integer(2))
	}
	n := 0
	for i := range c.met {
		m := &c.met[i]
		for _, r := range m.rulings {
			rest := reply[13+3*n:]
			if !strings.Contains(r.how, howCounts) {
				e.Limits = append(e.Limits, LimitState{
					Scope: m.scope.Name, Key: m.key, Origin: m.origin, Mode: m.mode,
					LimitUsage: LimitUsage{Limit: c.holds[n].Limit, Used: rest.integer(0), Booked: rest.integer(1), Free: instant(rest.integer(2))},
				})
			}
			n++
		}
	}
	return e
}

// instant is a time in microseconds; zero for 0.
func instant(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// String tells it to people.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s at %s\n", jobText(e.Job), e.Now.UTC().Format(clockFormat))
	e.tellJob(&b)
	if e.Closed != nil {
		what := "paused"
		if !e.Closed.Paused {
			what = "closed by the limit " + e.Closed.Limit.String()
		}
		fmt.Fprintf(&b, "  %s %s%s\n", scopeKeyText(e.Closed.Scope, e.Closed.Key), what, e.untilText(e.Closed))
	}
	for _, l := range e.Limits {
		fmt.Fprintf(&b, "  %-24s %-16s %8d used %8d booked  %s%s\n", scopeKeyText(l.Scope, l.Key), l.Limit, l.Used, l.Booked, e.roomText(l), originText(l))
	}
	return b.String()
}

const clockFormat = "2006-01-02 15:04:05.000 MST"

func (e Explanation) tellJob(b *strings.Builder) {
	if !e.Granted.IsZero() {
		settled := ""
		if e.Settled {
			settled = ", settled"
		}
		fmt.Fprintf(b, "  granted for %s (%s), charged %d%s\n", e.Granted.UTC().Format(clockFormat), e.in(e.Granted), e.Charged, settled)
	}
	if !e.Slot.IsZero() {
		fmt.Fprintf(b, "  booked for %s (%s)", e.Slot.UTC().Format(clockFormat), e.in(e.Slot))
		if e.Hold != nil && !e.Hold.Paused {
			fmt.Fprintf(b, ", held back by %s %s", scopeKeyText(e.Hold.Scope, e.Hold.Key), e.Hold.Limit)
		}
		b.WriteByte('\n')
	}
	if !e.Arrived.IsZero() {
		fmt.Fprintf(b, "  in line since %s, %d of %d jobs before it, expected to start %s\n",
			e.Arrived.UTC().Format(clockFormat), e.Before, e.Waiting, e.in(e.Expected))
		if !e.Aside.IsZero() {
			fmt.Fprintf(b, "  its lane is set aside, looked at again %s\n", e.in(e.Aside))
		}
	}
	if e.Granted.IsZero() && e.Slot.IsZero() && e.Arrived.IsZero() {
		b.WriteString("  nothing is known of it: it never asked, was given back, or ran more than a minute ago\n")
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

func (e Explanation) untilText(hold *Hold) string {
	if !hold.Paused {
		return ""
	}
	return " until " + hold.Until.UTC().Format(clockFormat) + " (" + e.in(hold.Until) + ")"
}

func (e Explanation) roomText(l LimitState) string {
	switch {
	case l.Free.IsZero():
		return "closed"
	case l.Free.After(e.Now):
		return "room " + e.in(l.Free)
	}
	return "room now"
}

// mostOfID is how much of a job's ID is told.
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

// mostOfKey is how much of a key is told.
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

func originText(l LimitState) string {
	text := ""
	if l.Origin != FromConfiguration {
		text = ", set for the " + l.Origin.String()
	}
	if l.Mode != Enforce {
		text += ", " + l.Mode.String()
	}
	return text
}
