package throttletest

import (
	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// checkHours returns each start at which the clock of the zone shows that the hours are closed.
func checkHours(scope, key string, limit throttle.Limit, starts []Start) (over []Over) {
	for _, start := range inOrder(starts) {
		if !wallclock.IsOpen(limit.Hours, start.At) {
			over = append(over, Over{Scope: scope, Key: key, Limit: limit, End: start.At, Units: start.Weight})
		}
	}
	return over
}
