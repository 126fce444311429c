package inspect

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// withAddress adds the address of Redis to an error.
func (t *Inspector) withAddress(err error) error {
	var unavailable *throttle.UnavailableError
	if errors.As(err, &unavailable) {
		unavailable.Address = t.address()
	}
	return err
}

// address returns the client's address of Redis, without the user and the password that it may contain; empty
// if the address is not known, as behind Sentinel.
func (t *Inspector) address() string {
	var addresses []string
	switch client := t.Client().(type) {
	case *redis.Client:
		addresses = []string{client.Options().Addr}
	case *redis.ClusterClient:
		addresses = slices.Clone(client.Options().Addrs)
	}
	for i, address := range addresses {
		addresses[i] = address[strings.LastIndexByte(address, '@')+1:]
	}
	text := strings.Join(addresses, ", ")
	if text == sentinels {
		return ""
	}
	return text
}

// sentinels is the address that go-redis gives a client behind Sentinel.
const sentinels = "FailoverClient"

// slowReload is the time from which on a Cluster client uses an old map of the slots for too long.
const slowReload = 2 * time.Second

// checkClient finds the settings of go-redis' Cluster client that make a recovery slow. A client of a single
// server, or of one behind Sentinel, gets the throttle's timeout from throttle.New; the settings of other clients
// are not known.
func (t *Inspector) checkClient() []Finding {
	cluster, is := t.Client().(*redis.ClusterClient)
	if !is {
		return nil
	}
	options := cluster.Options()
	var findings []Finding
	find := func(severity, text, remedy string) {
		findings = append(findings, Finding{Severity: severity, What: "client", Text: text, Remedy: remedy})
	}
	if !options.ContextTimeoutEnabled {
		find(warning,
			"the client of the Cluster heeds no deadline: a call that hangs is left behind in a goroutine until ReadTimeout ("+
				options.ReadTimeout.String()+") and its retries are over", "set ClusterOptions.ContextTimeoutEnabled")
	}
	if options.ClusterStateReloadInterval > slowReload {
		find(warning, "after a failover the client of the Cluster may ask the node that is gone for up to "+
			options.ClusterStateReloadInterval.String(),
			"set ClusterOptions.ClusterStateReloadInterval to 500ms")
	}
	if most := 10 * t.options.Timeout; options.DialTimeout > most {
		find(warning, "looking for the new primary the client of the Cluster may wait "+
			options.DialTimeout.String()+" for each node that is silent",
			"set ClusterOptions.DialTimeout to "+most.String()+" or less")
	}
	if options.ReadOnly || options.RouteByLatency || options.RouteRandomly {
		find(note,
			"ReadOnly, RouteByLatency and RouteRandomly do nothing for the throttle: its scripts write, and are "+
				"run by primaries",
			"leave them out if the client has no other user")
	}
	return findings
}
