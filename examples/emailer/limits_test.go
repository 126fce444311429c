package main

import (
	"slices"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A raise replaces the windows of its tenant, and leaves quota and hours in force.
func TestQuotaAndHoursLast(t *testing.T) {
	t.Parallel()
	scopes, err := rig.ParseLimits("global=5/1s;tenant=30/1s,open Mon-Fri 09:00-17:00 @UTC,250/10s", throttle.Global,
		scopeTenant, scopeDomain)
	if err != nil {
		t.Fatal(err)
	}
	o := options{scopes: scopes}
	if err := o.addPerDay("400@Europe/Paris"); err != nil {
		t.Fatal(err)
	}
	want := []throttle.Limit{throttle.OpenHours("Mon-Fri 09:00-17:00 @UTC"), throttle.PerCalendarDay(400, "Europe/Paris")}
	if got := (&emailer{options: o}).lasting(); !slices.Equal(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
