package view

import (
	"slices"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Lifted returns the limits that were in force and have no successor among others: none of the
// same window, or none for running jobs.
func Lifted(had, limits []throttle.Limit) []throttle.Limit {
	return slices.DeleteFunc(slices.Clone(had), func(old throttle.Limit) bool {
		return slices.ContainsFunc(limits, func(l throttle.Limit) bool {
			return l.Running == old.Running && (l.Running || l.Window == old.Window)
		})
	})
}
