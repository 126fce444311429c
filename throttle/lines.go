package throttle

import (
	"context"
	"strconv"
	"time"
)

// Line is what waits for one key of the fair scope.
type Line struct {
	// Key is the fair key; empty for jobs without one, and where there is no fair
	// scope. Of a very long key only the hash is known, which begins with ~.
	Key string
	// Share is its part in the division of what all share.
	Share int64
	// Jobs and Units wait in line.
	Jobs, Units int64
	// Booked is how many units are promised to its jobs.
	Booked int64
	// End is when its last job may start: a guess, as if everybody's line, and what
	// is set at run time, stayed as it is. It is by the fair key's limits and pause and
	// by its share of what all share. Not seen are those of other scopes, which its
	// lanes meet, and what is in the windows already. Under a limit of 0 it is
	// MaxWindow away.
	End time.Time
}

// LinesPage is a part of all lines.
type LinesPage struct {
	// Now is the instant of the answer, on Redis' clock.
	Now time.Time
	// Lines are those of this page, in no order.
	Lines []Line
	// Next is where the next page begins; empty if this was the last.
	Next string
}

// mostLines is how many entries one page looks at.
const mostLines = 500

// Lines tells a page of the fair keys that have jobs in line, from the one named
// by from, empty for the first. A page may be empty though more follow. What
// comes or goes while pages are read may be told once, twice or not at all. It
// changes nothing, blocks for one round trip and fails as Usage does.
func (t *Throttle) Lines(ctx context.Context, from string) (LinesPage, error) {
	if ctx == nil {
		return LinesPage{}, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	if from == "" {
		from = "0"
	}
	if _, err := strconv.ParseUint(from, 10, 64); err != nil {
		return LinesPage{}, &InvalidJobError{Field: "from", Value: from, Reason: "is no LinesPage.Next"}
	}
	keys := t.keys.shared
	reply, err := t.redis.run(ctx, linesScript, []string{keys[0], keys[2], t.keys.control}, []any{t.nowArgument(), from, mostLines, t.fair})
	if err != nil {
		return LinesPage{}, err
	}
	if !reply.is("ititi") {
		return LinesPage{}, badReply("lines", reply)
	}
	page := LinesPage{Now: time.UnixMicro(reply.integer(0)), Next: reply.text(1)}
	if page.Next == "0" {
		page.Next = ""
	}
	shared := setFor{reply.text(3), reply.integer(4)}
	for rest := reply[5:]; len(rest) > 0; rest = rest[6:] {
		if !rest.is("tiiiti") {
			return LinesPage{}, badReply("lines", reply)
		}
		encoded := rest.text(0)
		line := Line{Key: encoded, Share: t.shares.of(encoded), Jobs: rest.integer(1), Units: rest.integer(2), Booked: rest.integer(3)}
		if key, readable := decode(encoded); readable {
			line.Key = key
		}
		through, err := t.through(line, reply.integer(2), page.Now, shared, setFor{rest.text(4), rest.integer(5)})
		if err != nil {
			return LinesPage{}, err
		}
		line.End = page.Now.Add(through)
		page.Lines = append(page.Lines, line)
	}
	return page, nil
}

// setFor is what is set at run time for a scope key, as lines.lua tells it.
type setFor struct {
	text  string // as in a belief
	opens int64  // us; until then it is paused
}

// through is how long the limits in force on a fair key, and its share of those that
// all share, take to let through what waits and is promised, when no pause is in the
// way any more.
func (t *Throttle) through(line Line, rivals int64, now time.Time, shared, own setFor) (time.Duration, error) {
	longest, pause := 0.0, time.Duration(0)
	for i := range t.scopes {
		before, set := float64(line.Units+line.Booked), own
		switch name := t.scopes[i].Name; {
		case name == Global:
			before, set = before*others(line.Share, rivals), shared
		case name != t.fair, line.Key == "":
			continue // not met, or not by all of its lanes
		}
		m := meets{scope: &t.scopes[i], belief: set.text}
		if err := t.rule(&m); err != nil {
			return 0, err
		}
		if m.mode == Enforce {
			pause = max(pause, time.UnixMicro(set.opens).Sub(now))
		}
		for _, r := range m.rulings {
			switch {
			case r.free():
			case r.limit.Units == 0:
				return MaxWindow, nil
			default:
				longest = max(longest, before/float64(r.limit.Units)*float64(r.limit.Window))
			}
		}
	}
	return min(pause+time.Duration(min(longest, float64(MaxWindow))).Truncate(time.Microsecond), MaxWindow), nil
}
