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
	// End is when its last job may start: a guess, as if everybody's line stayed
	// as it is.
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
	reply, err := t.redis.run(ctx, linesScript, []string{keys[0], keys[2]}, []any{t.nowArgument(), from, mostLines})
	if err != nil {
		return LinesPage{}, err
	}
	if !reply.is("iti") {
		return LinesPage{}, badReply("lines", reply)
	}
	page := LinesPage{Now: time.UnixMicro(reply.integer(0)), Next: reply.text(1)}
	if page.Next == "0" {
		page.Next = ""
	}
	for rest := reply[3:]; len(rest) > 0; rest = rest[4:] {
		if !rest.is("tiii") {
			return LinesPage{}, badReply("lines", reply)
		}
		encoded := rest.text(0)
		line := Line{Key: encoded, Share: t.shares.of(encoded), Jobs: rest.integer(1), Units: rest.integer(2), Booked: rest.integer(3)}
		if key, readable := decode(encoded); readable {
			line.Key = key
		}
		line.End = page.Now.Add(t.through(line, reply.integer(2)))
		page.Lines = append(page.Lines, line)
	}
	return page, nil
}

// through is how long the limits of a fair key, and its share of those that all
// share, take to let through what waits and is promised.
func (t *Throttle) through(line Line, rivals int64) time.Duration {
	longest := 0.0
	for _, scope := range t.scopes {
		before := float64(line.Units + line.Booked)
		switch scope.Name {
		case Global:
			before *= others(line.Share, rivals)
		case t.fair:
		default:
			continue
		}
		for _, limit := range scope.Limits {
			if limit.Units > 0 {
				longest = max(longest, before/float64(limit.Units)*float64(limit.Window))
			}
		}
	}
	return time.Duration(min(longest, float64(MaxWindow))).Truncate(time.Microsecond)
}
