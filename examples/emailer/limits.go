package main

import (
	"fmt"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The scopes that mails are counted over, besides throttle.Global.
const (
	scopeTenant = "tenant"
	scopeDomain = "domain"
)

// defaultLimits shape the bundled campaign over about half a minute. The global
// limit is full from the first second to the last; the others hold up a tenant
// or a domain now and then.
const defaultLimits = "global=40/1s,900/20s;tenant=30/1s,250/10s;domain=25/1s,120/10s"

// parseLimits reads the limits of each scope: "global=40/1s,500/20s;tenant=…".
// A scope that is not named has no limits.
func parseLimits(text string) ([]throttle.Scope, error) {
	scopes := []throttle.Scope{{Name: throttle.Global}, {Name: scopeTenant}, {Name: scopeDomain}}
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, limits, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("limits: %q is not scope=units/window,…", strings.TrimSpace(part))
		}
		scope, err := findScope(scopes, strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if scope.Limits != nil {
			return nil, fmt.Errorf("limits: scope %s is there twice", scope.Name)
		}
		if scope.Limits, err = throttle.ParseLimits(limits); err != nil {
			return nil, fmt.Errorf("limits: scope %s: %w", scope.Name, err)
		}
	}
	return scopes, nil
}

func findScope(scopes []throttle.Scope, name string) (*throttle.Scope, error) {
	for i := range scopes {
		if scopes[i].Name == name {
			return &scopes[i], nil
		}
	}
	return nil, fmt.Errorf("limits: no scope %q; there are global, tenant and domain", name)
}
