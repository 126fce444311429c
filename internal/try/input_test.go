package try_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/try"
)

// TestBadInput: a bad text is an error that names its field and says what is wrong.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in            try.Input
		field, reason string
	}{
		"no limit":              {try.Input{Global: "many"}, "global", "want units/window"},
		"no window":             {try.Input{Tenant: "100/soon"}, "tenant", "is not a duration"},
		"no zone":               {try.Input{Tenant: "5000/day@Mars/Base"}, "tenant", "is no time zone"},
		"the same window":       {try.Input{Global: "1/1m, 2/1m"}, "global", "two limits of this kind"},
		"a short lease":         {try.Input{Global: "1/running@1s"}, "global", "shorter than twice the Lookahead"},
		"a scope's name":        {try.Input{Scope: "my scope"}, "scope", "want 1 to 64"},
		"a scope twice":         {try.Input{Scope: "tenant"}, "scope", "its own field"},
		"a scope's limits":      {try.Input{Scope: "domain", Limits: "x/1m"}, "limits", "are not an integer"},
		"too many limits":       {try.Input{Global: manyLimits(40), Tenant: manyLimits(40)}, "limits", "more than 64 limits"},
		"keys":                  {try.Input{Keys: "0"}, "keys", "from 1 to 1000"},
		"tenants":               {try.Input{Tenants: "51"}, "tenants", "from 1 to 50"},
		"tenants as a word":     {try.Input{Tenants: "two"}, "tenants", "is not a whole number"},
		"shares":                {try.Input{Shares: "3, 0"}, "shares", `"0" is not`},
		"jobs":                  {try.Input{Jobs: "-1"}, "jobs", "is not a whole number"},
		"no job at all":         {try.Input{Jobs: "0"}, "jobs", "no tenant has a job"},
		"weight":                {try.Input{Weight: "1.5"}, "weight", "is not a whole number"},
		"a job that never fits": {try.Input{Global: "10/1m", Weight: "11"}, "weight", "can never start"},
		"a rate":                {try.Input{PerSecond: "fast"}, "per_second", "is not a number of jobs per second"},
		"a rate that is none":   {try.Input{PerSecond: "NaN"}, "per_second", "is not a number of jobs per second"},
		"runs":                  {try.Input{Runs: "25h"}, "runs", "from 0 to 24h"},
		"begins":                {try.Input{Begins: "tomorrow"}, "begins", "is not a time"},
		"begins long ago":       {try.Input{Begins: "1969-12-01T09:00"}, "begins", "is not a time"},
		"paused":                {try.Input{Paused: "domain"}, "paused", "neither global nor tenant"},
		"from":                  {try.Input{From: "15d"}, "from", "is not a duration"},
		"until":                 {try.Input{Until: "later"}, "until", "is not a duration"},
		"until before from":     {try.Input{From: "2m", Until: "1m"}, "until", "before it begins"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := try.Play(c.in)
			var wrong *try.FieldError
			if !errors.As(err, &wrong) {
				t.Fatalf("got %+v and the error %v, want a FieldError", r, err)
			}
			if wrong.Field != c.field || !strings.Contains(wrong.Reason, c.reason) {
				t.Errorf("field %q is wrong since %s, want field %q and %q", wrong.Field, wrong.Reason, c.field, c.reason)
			}
		})
	}
}

// manyLimits has limits of different windows.
func manyLimits(n int) string {
	limits := make([]string, n)
	for i := range limits {
		limits[i] = fmt.Sprintf("1/%ds", i+1)
	}
	return strings.Join(limits, ", ")
}
