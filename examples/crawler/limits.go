package main

import (
	"time"

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

// scopeConnections is the scope that limits how many requests are under way to an IP
// address at once: several hosts may be one machine.
const scopeConnections = crawl.ScopeConnections

// A scope of the throttle has one unit. Hosts, and all hosts together, have limits in requests and in kilobytes, so
// each has two scopes. These names are the scope for the kilobytes of a host, and the scope for all requests, whose
// only key is its name.
const (
	scopeHostKilobytes = "host-kb"
	scopeAllRequests   = "requests"
)

// The limits of the bundled web, which is crawled within half a minute.
const (
	bundledRequests  = "global=30/1s;host=5/1s"
	bundledKilobytes = "global=1400/2s;customer=900/2s;site=800/2s;ip=600/2s;host=560/2s"
)

// The limits for real hosts, whose owners were not asked.
const (
	politeRequests  = "global=20/1s;host=1/1s"
	politeKilobytes = "global=50000/10s;customer=20000/10s;site=4000/10s;ip=4000/10s;host=4000/10s"
)

// margin is how long a request may take from its grant to the host. The throttle counts a
// request when it is granted; the host counts it when it arrives, a varying time later.
const margin = 100 * time.Millisecond

// The scopes that may be limited in requests, and in kilobytes.
var (
	requestScopes  = []string{throttle.Global, scopeHost}
	kilobyteScopes = []string{throttle.Global, scopeCustomer, scopeSite, scopeIP, scopeHost}
)

// throttleScopes returns the scopes of the throttle for the limits in requests and the limits in
// kilobytes, which have a margin, and the limit of requests under way to one address.
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

// kilobyteScope returns the name of the throttle's scope that counts the kilobytes of a scope.
func kilobyteScope(name string) string {
	if name == scopeHost {
		return scopeHostKilobytes
	}
	return name
}

// kilobyteCosts returns what a number of kilobytes costs. In the other scopes, a page costs
// its weight, which is one request.
func kilobyteCosts(kb int64) map[string]int64 {
	costs := make(map[string]int64)
	for _, name := range kilobyteScopes {
		costs[kilobyteScope(name)] = kb
	}
	return costs
}
