package throttletest

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// checkQuota sums the starts of each period. The clock of the zone says in which period, and in which step of a ramp,
// a start lies.
func checkQuota(scope, key string, limit throttle.Limit, starts []Start) []Over {
	of := limit.Calendar
	zone, err := time.LoadLocation(of.Zone)
	if err != nil {
		panic(err) // no throttle has such a limit
	}
	var periods []Over
	for _, start := range inOrder(starts) {
		began := wallclock.Began(of.Unit, of.Days, of.Hours, zone, start.At)
		if n := len(periods); n == 0 || began.After(periods[n-1].End) {
			periods = append(periods, Over{Scope: scope, Key: key, Limit: limit})
		}
		period := &periods[len(periods)-1]
		period.End, period.Units = start.At, period.Units+start.Weight
	}
	var over []Over
	for _, period := range periods {
		if period.Units > unitsOfQuota(limit, period.End) {
			over = append(over, period)
		}
	}
	return over
}

// unitsOfQuota returns the units of a quota at an instant.
func unitsOfQuota(limit throttle.Limit, at time.Time) int64 {
	if limit.Ramp != "" {
		return wallclock.UnitsAt(limit.Ramp, at)
	}
	return limit.Units
}
