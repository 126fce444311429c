// Package connect opens a Redis client from a URL: a client of one server, of a server
// that sentinels watch, or of a cluster. Its options let decisions resume soon after a
// failover.
//
//	client, err := connect.Open("redis-cluster://10.0.0.1:6379,10.0.0.2:6379")
//	th, err := throttle.New("smtp", client, scopes, nil)
//
// # URLs
//
//	host:port                                                one server
//	redis://user:password@host:6379/db                       one server; rediss:// with TLS
//	unix://user:password@/path/to/socket?db=1                one server; also redis-socket://, asynq's spelling
//	redis-sentinel://user:password@host1:26379,host2/db?master=name
//	redis-cluster://user:password@host1:6379,host2:6379
//
// rediss-sentinel and rediss-cluster are the last two with TLS. The default port is 6379,
// a sentinel's 26379. In redis-sentinel, user and password log in to the sentinels; the
// parameters username and password log in to the server. Escape characters of a user, a
// password or a parameter that have a meaning in a URL, such as %40 for @.
//
// Further parameters are go-redis' own, in its spelling, such as pool_size, client_name,
// read_timeout or skip_verify; see ParseURL, ParseFailoverURL and ParseClusterURL there.
// Parameters that let the client read from replicas are refused: a replica's data is out
// of date, and the scripts, which write, cannot run there.
//
// # Options
//
// Unless the URL says otherwise, a connection attempt times out after 1 s and a command
// after 2 s, and the deadline of a context ends a command at once. A cluster's client
// tries a node once and, while it is used, asks every half second which node serves which
// slot. go-redis' defaults are 5 s for connections and commands, 5 attempts, one question
// a minute, and deadlines that end nothing.
package connect
