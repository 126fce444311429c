package dashboard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

// remedy is what would let jobs start sooner under a scope key.
type remedy int

const (
	nothing remedy = iota // the jobs wait only for their turn, or the reason is not known
	resume                // the scope key is paused
	hours                 // its hours are closed
	raise                 // a limit holds the jobs back
)

// remedyUnder returns the remedy under a scope key with this usage.
func remedyUnder(u inspect.Usage) remedy {
	why, _ := view.Why(u)
	switch {
	case why == "":
		return nothing
	case u.Paused.After(u.Now):
		return resume
	case view.HoursHold(u):
		return hours
	}
	return raise
}

// remedyOf returns the remedy under a scope key. If the board has not read the key's usage, it knows at most whether
// the key is paused.
func (b *board) remedyOf(key scopeKey) remedy {
	if s := b.keys[key]; s != nil && s.err == nil {
		return remedyUnder(s.usage)
	}
	isPause := func(s inspect.Setting) bool { return s.What == "pause" && key == scopeKey{s.Scope, s.Key} }
	if slices.ContainsFunc(b.process.sets.At(b.now), isPause) {
		return resume
	}
	return nothing
}

// help says what would let the jobs of one scope key start sooner. With several, jobs of several flows wait there.
func (r remedy) help(key string, several bool) string {
	switch {
	case r == resume:
		return fmt.Sprintf("Resume %s to let its jobs start sooner.", key)
	case r == hours:
		return "Other hours would let its jobs start sooner."
	case r == raise && several:
		return fmt.Sprintf("A higher limit of %s would help, and so would a larger share.", key)
	case r == raise:
		return fmt.Sprintf("A higher limit of %s would help.", key)
	}
	return ""
}

// helpOfSeveral says what would let jobs of a flow start sooner if they wait for several scope keys, one row for each.
func (b *board) helpOfSeveral(rows []flowRow) string {
	keys, share := make(map[remedy]int), ""
	for _, row := range rows {
		r := b.remedyOf(row.For)
		if keys[r]++; r == raise && b.line.under[row.For].Flows > 1 {
			share = ", and so would a larger share"
		}
	}
	var help []string
	add := func(r remedy, format, some string) {
		switch keys[r] {
		case 0:
		case len(rows):
			help = append(help, fmt.Sprintf(format, "these keys"))
		default:
			help = append(help, fmt.Sprintf(format, some))
		}
	}
	add(resume, "Resume %s to let their jobs start sooner.", "the paused keys")
	add(hours, "Other hours of %s would let their jobs start sooner.", "the closed keys")
	add(raise, "Higher limits of %s would help"+share+".", "the full keys")
	return strings.Join(help, " ")
}
