package try

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Input is what a person enters: one text per field. An empty text stands for the field's default.
//
// A field "of each tenant" is a list, such as "500, 20": the first number is the first tenant's, and so on. The last
// number also holds for all further tenants.
type Input struct {
	Global    string `json:"global"`     // the limits of all jobs, as throttle.ParseLimits takes them; default: none
	Tenant    string `json:"tenant"`     // the limits of each tenant; default: none
	Scope     string `json:"scope"`      // the name of one more scope, such as domain; default: there is none
	Limits    string `json:"limits"`     // the limits of each key of that scope; default: none
	Keys      string `json:"keys"`       // how many keys that scope has, which jobs take in turn; default: 1
	Tenants   string `json:"tenants"`    // how many tenants there are; default: 1
	Shares    string `json:"shares"`     // of each tenant; default: 1
	Jobs      string `json:"jobs"`       // of each tenant; default: 100
	Weight    string `json:"weight"`     // of each tenant's jobs, in units; default: 1
	PerSecond string `json:"per_second"` // how many jobs of each tenant come per second; default: 0, all come at once
	Runs      string `json:"runs"`       // how long a job runs, such as 2s; default: 0
	Begins    string `json:"begins"`     // the time at which the first jobs come, in UTC; default: 2026-12-01T09:00
	Paused    string `json:"paused"`     // what the incident closes: global (default), or tenant: the first tenant
	From      string `json:"from"`       // when the incident begins, after the first jobs; default: 0
	Until     string `json:"until"`      // when it ends, after the first jobs; default: 0, there is no incident
}

// FieldError says which field is wrong, and why.
type FieldError struct {
	Field  string `json:"field"` // the name of the field in JSON
	Reason string `json:"reason"`
}

func (e *FieldError) Error() string { return fmt.Sprintf("try: field %s: %s", e.Field, e.Reason) }

func wrong(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// number reads an integer.
func number(field, text string, otherwise, least, most int64) (int64, error) {
	if text = strings.TrimSpace(text); text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, wrong(field, "%q is not a whole number from %d to %d", text, least, most)
	}
	return n, nil
}

// perTenant is a list with a value for each tenant.
type perTenant[T any] []T

// of returns the value of a tenant. The last value in the list holds for all further tenants too.
func (l perTenant[T]) of(tenant int) T { return l[min(tenant, len(l)-1)] }

// numbers reads a list of integers.
func numbers(field, text string, otherwise, least, most int64) (all perTenant[int64], err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := number(field, part, otherwise, least, most)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// mostPerSecond bounds how many jobs of a tenant come per second.
const mostPerSecond = 1e6

// rates reads a list of jobs per second: 0 is all at once.
func rates(field, text string) (all perTenant[float64], err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			part = "0"
		}
		rate, err := strconv.ParseFloat(part, 64)
		if err != nil || math.IsNaN(rate) || rate < 0 || rate > mostPerSecond || rate != 0 && rate < 1/mostPerSecond {
			return nil, wrong(field, "%q is not a number of jobs per second: want 0, or up to %.0f", part, mostPerSecond)
		}
		all = append(all, rate)
	}
	return all, nil
}

// duration reads a duration as a limit's window is written, with d for 24 hours.
func duration(field, text string, most time.Duration) (time.Duration, error) {
	if text = strings.TrimSpace(text); text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if days, is := strings.CutSuffix(text, "d"); is {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d < 0 || d > most {
		return 0, wrong(field, "%q is not a duration from 0 to %s, such as 30s, 5m or 2h", text, most)
	}
	return d.Truncate(time.Microsecond), nil
}

// The layouts of a time, as browsers write it: with and without seconds.
var layouts = []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04"}

// begin is when the first jobs come by default.
const begin = "2026-12-01T09:00"

// instant reads a time in UTC, from the years that a throttle supports.
func instant(field, text string) (time.Time, error) {
	if text = strings.TrimSpace(text); text == "" {
		text = begin
	}
	for _, layout := range layouts {
		at, err := time.Parse(layout, text)
		if err == nil && at.Year() >= 2000 && at.Year() < 2100 {
			return at, nil
		}
	}
	return time.Time{}, wrong(field, "%q is not a time of the years 2000 to 2099, such as %s", text, begin)
}
