package throttle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

const (
	publishedFor = 24 * time.Hour   // after it was last published
	aliveFor     = 25 * time.Minute // twice publishEvery, and a bit
	mostShares   = 1000             // more are not published
	mostEnded    = 100              // processes that are not alive and are kept, those seen last
)

// Process is what one Throttle value has published about itself and its configuration: after its first
// answer from Redis, then every ten minutes while it gets answers, and every minute while its jobs begin
// later than a margin. It disappears a day after it was last published, or when a hundred processes have ended
// after it. All instants are on Redis' clock.
type Process struct {
	ID      string `json:"id"` // of the Throttle value; each draws its own
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	// Library is the version of this module in the program, empty if not known. State is the version
	// of its data in Redis: processes with different versions share no limit.
	Library string `json:"library,omitempty"`
	State   string `json:"state"`
	// Since is when the Process was first published, Seen when it was last published.
	Since time.Time `json:"since"`
	Seen  time.Time `json:"seen"`
	// Ended is true if the process has published that it ends: its Shaper was stopped.
	Ended bool `json:"ended,omitempty"`
	// Alive is true if the process has not Ended and Seen is less than 25 minutes ago. Otherwise it
	// has ended or had nothing to do.
	Alive bool `json:"alive,omitempty"`
	// Scopes are the scopes passed to New; the Mode of each is the weaker of its own and Options.Mode.
	Scopes    []Scope       `json:"scopes"`
	Lookahead time.Duration `json:"lookahead_ns"`
	Grace     time.Duration `json:"grace_ns"`
	FairScope string        `json:"fair_scope,omitempty"` // empty: all jobs are one flow
	// FairByTime and PriorityFloor are those of Options.
	FairByTime    bool    `json:"fair_by_time,omitempty"`
	PriorityFloor float64 `json:"priority_floor"`
	// Shares are those of Options, if there are at most 1,000 and their keys are UTF-8;
	// SharesInAll is how many there are. ShareFunc is true if there is an Options.Share.
	Shares      map[string]int `json:"shares,omitempty"`
	SharesInAll int            `json:"shares_in_all,omitempty"`
	ShareFunc   bool           `json:"share_func,omitempty"`
	// Delays are how long after their grants the process has begun its jobs, for each scope
	// with a Margin.
	Delays map[string]StartDelay `json:"delays,omitempty"`
	// Clocks are, for each time zone of a quota or of hours, when the process read its clock, and when
	// this clock will be changed within two years, by the zone data of the process. Each instant has the offset from UTC
	// that holds from then on.
	Clocks map[string][]time.Time `json:"clocks,omitempty"`
}

// String names the process for people.
func (p Process) String() string {
	return fmt.Sprintf("%s on %s, process %d", p.Program, p.Host, p.PID)
}

// Differences lists how the configurations of two processes differ, as short texts with p's first; it is
// empty if they are alike. It names scopes and limits, but no key.
func (p Process) Differences(other Process) []string {
	var found []string
	differ := func(what, mine, others string) {
		if mine != others {
			found = append(found, what+" "+mine+", not "+others)
		}
	}
	differ("state version", p.State, other.State)
	mine, others := scopeTexts(p.Scopes), scopeTexts(other.Scopes)
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		differ("scope "+name, mine[name], cmp.Or(others[name], "missing"))
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if _, known := mine[name]; !known {
			differ("scope "+name, "missing", others[name])
		}
	}
	differ("Lookahead", wire.Duration(p.Lookahead), wire.Duration(other.Lookahead))
	differ("Grace", wire.Duration(p.Grace), wire.Duration(other.Grace))
	differ("FairByTime", fmt.Sprint(p.FairByTime), fmt.Sprint(other.FairByTime))
	differ("PriorityFloor", fmt.Sprint(p.PriorityFloor), fmt.Sprint(other.PriorityFloor))
	differ("FairScope", cmp.Or(p.FairScope, "none"), cmp.Or(other.FairScope, "none"))
	if !maps.Equal(p.Shares, other.Shares) || p.SharesInAll != other.SharesInAll {
		found = append(found, fmt.Sprintf("Shares of %d keys, not the same as of %d", p.SharesInAll, other.SharesInAll))
	}
	differ("Share", isSet(p.ShareFunc), isSet(other.ShareFunc))
	for _, zone := range slices.Sorted(maps.Keys(p.Clocks)) {
		mine, others := offsetsOf(p.Clocks[zone], other.Clocks[zone])
		differ("the clock of "+zone+" at", mine, others)
	}
	return found
}

func isSet(is bool) string {
	if is {
		return "set"
	}
	return "not set"
}

// scopeTexts describe each scope as far as decisions and estimates depend on it: its limits, each with a precision or a
// lease that is not the default, its mode if it does not enforce them, and its other fields that are set.
func scopeTexts(scopes []Scope) map[string]string {
	texts := make(map[string]string)
	for _, s := range scopes {
		limits := slices.Clone(s.Limits)
		slices.SortFunc(limits, func(a, b Limit) int { return a.span(0).Compare(b.span(0)) })
		for i, l := range limits {
			limits[i] = l.plain()
		}
		texts[s.Name] = cmp.Or(limitsString(limits), "without limits")
		if s.Mode != Enforce {
			texts[s.Name] += " (" + s.Mode.String() + ")"
		}
		if s.Cooldown > 0 {
			texts[s.Name] += " (cools down for " + wire.Duration(s.Cooldown) + ")"
		}
		if s.Runs > 0 {
			texts[s.Name] += " (runs for " + wire.Duration(s.Runs) + ")"
		}
		if s.Margin > 0 {
			texts[s.Name] += " (with a margin of " + wire.Duration(s.Margin) + ")"
		}
		if s.MaxWaiting != (Length{}) {
			texts[s.Name] += " (its line has at most " + s.MaxWaiting.String() + ")"
		}
		if s.Floor > 0 {
			texts[s.Name] += " (follows its upstream down to " + strconv.FormatFloat(s.Floor, 'g', 3, 64) + ")"
		}
		if s.Optional && s.Name != Global {
			texts[s.Name] += " (optional)"
		}
	}
	return texts
}

// limitsString writes limits as ParseLimits reads them.
func limitsString(limits []Limit) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	return strings.Join(texts, ", ")
}

func (c *caller) processes(ctx context.Context) ([]Process, error) {
	found, err := c.fields(ctx, wire.ProcessesKey(c.throttle))
	if err != nil {
		return nil, err
	}
	return processesOf(found), nil
}

// processesOf reads the published processes, without those that are too old or that this version cannot read.
func processesOf(found fields) []Process {
	var all []Process
	for _, text := range found.of {
		var p Process
		if err := json.Unmarshal([]byte(text), &p); err != nil || found.now.Sub(p.Seen) > publishedFor {
			continue
		}
		p.Alive = !p.Ended && found.now.Sub(p.Seen) < aliveFor
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int {
		if a.Alive != b.Alive {
			if a.Alive {
				return -1
			}
			return 1
		}
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// self is what this process publishes about itself.
func (t *setup) self() Process {
	p := thisProcess()
	p.ID, p.State = t.asker, wire.StateVersion
	p.Lookahead, p.Grace, p.FairScope, p.FairByTime = t.options.Lookahead, t.options.Grace, t.fair, t.options.FairByTime
	p.PriorityFloor = t.options.PriorityFloor
	p.Scopes = copyScopes(t.scopes)
	for i := range p.Scopes {
		p.Scopes[i].Mode = max(p.Scopes[i].Mode, t.options.Mode)
	}
	p.Delays = t.delays.all()
	p.Clocks = clocksOf(p.Scopes, time.Now())
	p.SharesInAll, p.ShareFunc = len(t.options.Shares), t.options.Share != nil
	unreadable := func(key string) bool { return !utf8.ValidString(key) }
	if p.SharesInAll <= mostShares && !slices.ContainsFunc(slices.Collect(maps.Keys(t.options.Shares)), unreadable) {
		p.Shares = t.options.Shares
	}
	return p
}

// thisProcess is the part of a Process that all throttles of the process share.
var thisProcess = sync.OnceValue(func() Process {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Process{Host: host, PID: os.Getpid(), Program: filepath.Base(os.Args[0]), Library: libraryVersion()}
})

const module = "github.com/asynq-throttle/asynq-throttle"

func libraryVersion() string {
	info, is := debug.ReadBuildInfo()
	if !is {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return m.Version
		}
	}
	return ""
}
