package connect

import (
	"cmp"
	"time"

	"github.com/redis/go-redis/v9"
)

// Defaults, unless the URL says otherwise.
const (
	dialTimeout    = time.Second
	dialAttempts   = 1 // of a cluster's node: if it is dead, other nodes know its replacement
	ioTimeout      = 2 * time.Second
	reloadInterval = 500 * time.Millisecond
)

// Open returns a client for a URL; the package's comment lists the forms. Open does not
// connect to Redis unless the URL asks for idle connections (min_idle_conns), but it
// resolves host names, for two seconds at most. Close the client in the end. The error is
// a *URLError.
func Open(url string) (redis.UniversalClient, error) {
	p, err := parse(url)
	if err != nil {
		return nil, err
	}
	switch p.kind {
	case ofSentinels:
		return openFailover(p)
	case ofCluster:
		return openCluster(p)
	}
	return openServer(p)
}

func openServer(p *parts) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(p.text())
	if err != nil {
		return nil, p.refusal(err)
	}
	o.Username, o.Password = p.user, p.password
	o.ContextTimeoutEnabled = true
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout, o.WriteTimeout = cmp.Or(o.ReadTimeout, ioTimeout), cmp.Or(o.WriteTimeout, ioTimeout)
	return redis.NewClient(o), nil
}

func openFailover(p *parts) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(p.text())
	if err != nil {
		return nil, p.refusal(err)
	}
	if o.MasterName == "" {
		return nil, &URLError{Scheme: p.scheme, Part: "parameter master",
			Reason: "is missing; it is what the sentinels call the primary"}
	}
	o.SentinelAddrs = append(p.addrs, o.SentinelAddrs[1:]...) // the parameter addr
	o.SentinelUsername, o.SentinelPassword = p.user, p.password
	o.Username, o.Password = p.serverUser, p.serverPassword
	o.ContextTimeoutEnabled = true
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout, o.WriteTimeout = cmp.Or(o.ReadTimeout, ioTimeout), cmp.Or(o.WriteTimeout, ioTimeout)
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server is checked by its own name
	}
	return redis.NewFailoverClient(o), nil
}

func openCluster(p *parts) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(p.text())
	if err != nil {
		return nil, p.refusal(err)
	}
	o.Addrs = append(p.addrs, o.Addrs[1:]...) // the parameter addr
	o.Username, o.Password = p.user, p.password
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.DialerRetries = cmp.Or(o.DialTimeout, dialTimeout), cmp.Or(o.DialerRetries, dialAttempts)
	o.ReadTimeout, o.WriteTimeout = cmp.Or(o.ReadTimeout, ioTimeout), cmp.Or(o.WriteTimeout, ioTimeout)
	o.ClusterStateReloadInterval = reloadInterval
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server is checked by its own name
	}
	return redis.NewClusterClient(o), nil
}
