package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The scopes that requests and kilobytes are counted over, besides
// throttle.Global.
const (
	scopeHost     = "host"
	scopeSite     = "site" // the registrable domain
	scopeIP       = "ip"
	scopeCustomer = "customer"
)

// In the throttle, which counts both, a scope has one unit. What is limited in both has
// two scopes with the same keys: by these names the one in kilobytes of a host, and the
// one in requests of all, whose only key is its name.
const (
	scopeHostKilobytes = "host-kb"
	scopeAllRequests   = "requests"
)

// The limits of the bundled web, which is crawled within half a minute.
const (
	bundledRequests  = "global=30/1s;host=5/1s"
	bundledKilobytes = "global=1400/2s;customer=900/2s;site=800/2s;ip=600/2s;host=560/2s"
)

// The limits of real hosts, whose owners have not been asked.
const (
	politeRequests  = "global=20/1s;host=1/1s"
	politeKilobytes = "global=50000/10s;customer=20000/10s;site=4000/10s;ip=4000/10s;host=4000/10s"
)

func requestScopes() []throttle.Scope {
	return []throttle.Scope{{Name: throttle.Global}, {Name: scopeHost}}
}

func kilobyteScopes() []throttle.Scope {
	return []throttle.Scope{{Name: throttle.Global}, {Name: scopeCustomer}, {Name: scopeSite}, {Name: scopeIP}, {Name: scopeHost}}
}

// throttleScopes are the scopes of the throttle, by the limits in requests and those in
// kilobytes.
func throttleScopes(requests, kilobytes []throttle.Scope) []throttle.Scope {
	var scopes []throttle.Scope
	for _, scope := range requests {
		if scope.Name == throttle.Global {
			scope.Name = scopeAllRequests
		}
		scopes = append(scopes, scope)
	}
	for _, scope := range kilobytes {
		scope.Name = kilobyteScope(scope.Name)
		scopes = append(scopes, scope)
	}
	return scopes
}

// kilobyteScope is the throttle's scope that counts the kilobytes of a scope.
func kilobyteScope(name string) string {
	if name == scopeHost {
		return scopeHostKilobytes
	}
	return name
}

// kilobyteCosts is what so many kilobytes cost in the throttle. Of the other scopes a
// page takes its weight, which is one request.
func kilobyteCosts(kb int64) map[string]int64 {
	costs := make(map[string]int64)
	for _, scope := range kilobyteScopes() {
		costs[kilobyteScope(scope.Name)] = kb
	}
	return costs
}

// parseLimits reads the limits of each scope: "global=40/1s,500/20s;host=…". A
// scope that is not named has no limits.
func parseLimits(text string, scopes []throttle.Scope) ([]throttle.Scope, error) {
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, limits, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not scope=units/window,…", strings.TrimSpace(part))
		}
		scope, err := findScope(scopes, strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if scope.Limits != nil {
			return nil, fmt.Errorf("scope %s is there twice", scope.Name)
		}
		if scope.Limits, err = throttle.ParseLimits(limits); err != nil {
			return nil, fmt.Errorf("scope %s: %w", scope.Name, err)
		}
	}
	return scopes, nil
}

func findScope(scopes []throttle.Scope, name string) (*throttle.Scope, error) {
	names := make([]string, len(scopes))
	for i := range scopes {
		if scopes[i].Name == name {
			return &scopes[i], nil
		}
		names[i] = scopes[i].Name
	}
	return nil, fmt.Errorf("no scope %q; there are %s", name, strings.Join(names, ", "))
}

// holds refuses limits under which a page of so many kilobytes may never start.
func holds(scopes []throttle.Scope, kb int64) error {
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			if limit.Units != throttle.Unlimited && limit.Units < kb {
				return fmt.Errorf("the %s limit %s is less than the %d KB that one page is charged at most (-max-kb and %d for what is on the way)",
					scope.Name, limit, kb, onTheWay)
			}
		}
	}
	return nil
}

// withDelay is the limits of a host that asks for a delay from one request to the
// next: one request in any such time, besides what holds for every host.
func withDelay(limits []throttle.Limit, delay time.Duration) []throttle.Limit {
	all := []throttle.Limit{throttle.Per(1, delay)}
	for _, limit := range limits {
		if limit.Window != delay {
			all = append(all, limit)
		}
	}
	return all
}
