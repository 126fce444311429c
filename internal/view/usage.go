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

// Use is the state of one limit of a scope key.
type Use struct {
	Scope string `json:"scope"`
	Key   string `json:"key,omitempty"`
	// Limit is the limit's text, for a ramp with the units in force; empty where the scope key has no limit.
	Limit string `json:"limit,omitempty"`
	// Used is how many units started in the window that ends now, or in the period of a quota, and
	// Booked how many are promised. Ratio is the used part of the limit: 1 for a limit of 0, -1 for an
	// unlimited one.
	Used   int64   `json:"used"`
	Booked int64   `json:"booked"`
	Ratio  float64 `json:"ratio"`
	// Free is the earliest start for one unit; zero if there is none.
	Free time.Time `json:"free,omitzero"`
	// Hours says whether hours are open and until when; empty for other limits.
	Hours string `json:"hours,omitempty"`
	// Anew is when the period of a quota ends; zero for other limits.
	Anew time.Time `json:"begins_anew,omitzero"`
	// Served is the served share of the limit; zero if it is all.
	Served float64 `json:"served,omitzero"`
	// SetFor is scope or key if the limit was set at run time. Mode is the mode in force. Ends is
	// when the setting ends by itself; zero if it does not.
	SetFor string        `json:"set_for,omitempty"`
	Ends   time.Time     `json:"ends,omitzero"`
	Mode   throttle.Mode `json:"mode"`
	// Paused is when the pause of the scope key ends; zero without a pause. Where Mode is not enforce, neither the pause
	// nor the limit delays a job, whatever Free is.
	Paused time.Time `json:"paused,omitzero"`
	// Waiting is how many flows wait under the scope key.
	Waiting int64 `json:"waiting_flows"`
	// Line is how long its line is and may get; empty without a bound.
	Line string `json:"line,omitempty"`
}

// Uses is the state of limits, the fullest first.
type Uses struct {
	Throttle string    `json:"throttle"`
	Now      time.Time `json:"now"`
	Rows     []Use     `json:"rows"`
	InAll    int       `json:"rows_in_all"`
}

// UsageOf reads one scope key.
func UsageOf(ctx context.Context, th *inspect.Inspector, scope, key string) (Uses, error) {
	u, err := th.Usage(ctx, scope, key)
	if err != nil {
		return Uses{}, err
	}
	rows := UsesOf(u)
	return Uses{Throttle: th.Name(), Now: u.Now, Rows: rows, InAll: len(rows)}, nil
}

// UsageOfAll reads all keys of a scope that Redis has; with an empty scope, all keys of all scopes. It makes rows of
// the fullest limits only.
func UsageOfAll(ctx context.Context, th *inspect.Inspector, scope string, most int) (Uses, error) {
	limits, err := fullestFirst(ctx, th, scope)
	if err != nil {
		return Uses{}, err
	}
	all := Uses{Throttle: th.Name(), InAll: len(limits)}
	for i, l := range limits {
		if l.of.Now.After(all.Now) {
			all.Now = l.of.Now
		}
		if i < most {
			all.Rows = append(all.Rows, useOf(l.of, l.limit))
		}
	}
	return all, nil
}

// Fullest reads the keys of a scope that Redis has, and returns those with the fullest limits, no more than most.
func Fullest(ctx context.Context, th *inspect.Inspector, scope string, most int) ([]inspect.Usage, error) {
	limits, err := fullestFirst(ctx, th, scope)
	var keys []inspect.Usage
	seen := make(map[*inspect.Usage]bool)
	for _, l := range limits {
		if !seen[l.of] && len(keys) < most {
			seen[l.of], keys = true, append(keys, *l.of)
		}
	}
	return keys, err
}

// fullestFirst reads the limits of all keys of a scope; with an empty scope, those of all scopes.
func fullestFirst(ctx context.Context, th *inspect.Inspector, scope string) ([]ranked, error) {
	usages, err := th.UsageAll(ctx, scope)
	var limits []ranked
	for i := range usages {
		u := &usages[i]
		for n := range rowsOf(u) {
			limits = append(limits, ranked{u, n, full(u, n)})
		}
	}
	slices.SortFunc(limits, ranked.compare)
	return limits, err
}

// ranked is a limit of a scope key, with how full it is.
type ranked struct {
	of    *inspect.Usage
	limit int
	full  float64
}

// compare puts the fullest limit first.
func (r ranked) compare(other ranked) int {
	return cmp.Or(cmp.Compare(other.full, r.full), cmp.Compare(r.of.Scope, other.of.Scope),
		cmp.Compare(r.of.Key, other.of.Key), cmp.Compare(r.limit, other.limit))
}

// full returns the used or promised part of the served share of a limit, 2 for a paused scope key.
func full(u *inspect.Usage, limit int) float64 {
	if u.Paused.After(u.Now) {
		return 2
	}
	if len(u.Limits) == 0 {
		return 0
	}
	l := u.Limits[limit]
	if l.Units <= 0 {
		return ratio(l)
	}
	return float64(l.Used+l.Booked) / float64(l.Units) / ServedShare(*u)
}

// rowsOf returns how many rows a scope key has: one for each limit, one if it has none.
func rowsOf(u *inspect.Usage) int { return max(1, len(u.Limits)) }

// UsesOf returns a row for each limit of a scope key; one row if it has none.
func UsesOf(u inspect.Usage) []Use {
	rows := make([]Use, rowsOf(&u))
	for i := range rows {
		rows[i] = useOf(&u, i)
	}
	return rows
}

// useOf returns the row of one limit of a scope key.
func useOf(u *inspect.Usage, limit int) Use {
	row := Use{Scope: u.Scope, Key: u.Key, SetFor: u.SetFor, Ends: u.Ends, Mode: u.Mode, Waiting: u.Waiting,
		Line: LineText(*u)}
	if u.Paused.After(u.Now) {
		row.Paused = u.Paused
	}
	if len(u.Limits) == 0 {
		return row
	}
	l := u.Limits[limit]
	row.Limit, row.Used, row.Booked, row.Free, row.Ratio = UseText(l), l.Used, l.Booked, l.Free, ratio(l)
	if row.Hours = HoursText(l, u.Now); row.Hours == "" {
		row.Anew = l.Anew
	}
	if u.Served < 1 && l.Limit.Units > 0 {
		row.Served = u.Served
	}
	return row
}

// LineText says how long the line of a scope key is, and how long it may get: "87 of 100 jobs"; empty without a bound.
func LineText(u inspect.Usage) string {
	var parts []string
	if most := u.MaxWaiting.Jobs; most > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s", u.Line.Jobs, Many(most, "job")))
	}
	if most := u.MaxWaiting.Units; most > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s", u.Line.Units, Many(most, "unit")))
	}
	return strings.Join(parts, ", ")
}

func ratio(l inspect.LimitUsage) float64 {
	switch l.Units {
	case throttle.Unlimited:
		return -1
	case 0:
		return 1
	}
	return float64(l.Used) / float64(l.Units)
}
