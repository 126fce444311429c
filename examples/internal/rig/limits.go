package rig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ParseLimits reads the limits of scopes: "global=40/1s,500/20s;host=…". A scope that
// is not named has no limits.
func ParseLimits(text string, names ...string) ([]throttle.Scope, error) {
	scopes := make([]throttle.Scope, len(names))
	for i, name := range names {
		scopes[i].Name = name
	}
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, limits, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not scope=units/window,…", strings.TrimSpace(part))
		}
		scope := find(scopes, strings.TrimSpace(name))
		if scope == nil {
			return nil, fmt.Errorf("no scope %q; there are %s", strings.TrimSpace(name), strings.Join(names, ", "))
		}
		if scope.Limits != nil {
			return nil, fmt.Errorf("scope %s is there twice", scope.Name)
		}
		var err error
		if scope.Limits, err = throttle.ParseLimits(limits); err != nil {
			return nil, fmt.Errorf("scope %s: %w", scope.Name, err)
		}
		for _, limit := range scope.Limits {
			if limit.Units == 0 {
				return nil, fmt.Errorf("scope %s: under %s nothing ever starts", scope.Name, limit)
			}
		}
	}
	return scopes, nil
}

// LimitsOf returns the limits of the scope with a name, and none if there is no such scope.
func LimitsOf(scopes []throttle.Scope, name string) []throttle.Limit {
	if scope := find(scopes, name); scope != nil {
		return scope.Limits
	}
	return nil
}

// MarginOf returns the least margin of scopes, or 0 if there are none.
func MarginOf(scopes []throttle.Scope) time.Duration {
	if len(scopes) == 0 {
		return 0
	}
	least := scopes[0].Margin
	for _, scope := range scopes {
		least = min(least, scope.Margin)
	}
	return least
}

// WithMargin returns scopes that have a margin.
func WithMargin(scopes []throttle.Scope, margin time.Duration) []throttle.Scope {
	scopes = slices.Clone(scopes)
	for i := range scopes {
		scopes[i].Margin = margin
	}
	return scopes
}

func find(scopes []throttle.Scope, name string) *throttle.Scope {
	for i := range scopes {
		if scopes[i].Name == name {
			return &scopes[i]
		}
	}
	return nil
}
