package main

import (
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/crawl"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The scopes that requests and kilobytes are counted over, besides throttle.Global.
const (
	scopeHost     = crawl.ScopeHost // "host"
	scopeSite     = crawl.ScopeSite // "site", the registrable domain
	scopeIP       = crawl.ScopeIP   // "ip"
	scopeCustomer = crawl.ScopeCustomer
)

// scopeConnections is what is limited in requests that are under way at once, to an IP
// address: several hosts may be one machine.
const scopeConnections = crawl.ScopeConnections

// In the throttle, which counts both requests and kilobytes, a scope has one unit. What
// is limited in both has two scopes with the same keys: by these names the one in
// kilobytes of a host, and the one in requests of all, whose only key is its name.
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

// What is limited in requests, and what in kilobytes.
var (
	requestScopes  = []string{throttle.Global, scopeHost}
	kilobyteScopes = []string{throttle.Global, scopeCustomer, scopeSite, scopeIP, scopeHost}
)

// throttleScopes are the scopes of the throttle, by the limits in requests, those in
// kilobytes, and that of what is under way at once.
func throttleScopes(requests, kilobytes []throttle.Scope, atOnce throttle.Limit) []throttle.Scope {
	scopes := []throttle.Scope{{Name: scopeConnections, Limits: []throttle.Limit{atOnce}}}
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
	for _, name := range kilobyteScopes {
		costs[kilobyteScope(name)] = kb
	}
	return costs
}
