package view

import (
	"slices"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Lifted returns the limits in had that have no successor in limits: none with the same window
// or calendar, or no running limit.
func Lifted(had, limits []throttle.Limit) []throttle.Limit {
	return slices.DeleteFunc(slices.Clone(had), func(old throttle.Limit) bool {
		return slices.ContainsFunc(limits, func(l throttle.Limit) bool {
			return l.Label() == old.Label()
		})
	})
}
