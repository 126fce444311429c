// Package connect opens a Redis client from a URL: of one server, of one that
// sentinels watch, or of a cluster, with the options that let decisions resume soon
// after a failover.
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
// rediss-sentinel and rediss-cluster are the last two with TLS. Where a port is left out
// it is 6379, a sentinel's 26379. User and password of redis-sentinel are those of the
// sentinels; those of the server behind them are the parameters username and password.
// A character of a user, a password or a parameter that has a meaning in a URL is to be
// escaped, such as %40 for @.
//
// Further parameters are go-redis' own, in its spelling, such as pool_size, client_name,
// read_timeout or skip_verify; see ParseURL, ParseFailoverURL and ParseClusterURL there.
// Those that let the client read from replicas are refused: what a replica says of a
// quota is out of date, and scripts cannot run there.
//
// # Options
//
// Where the URL says nothing else: a connection is made within 1 s, or tried anew; a
// command is answered within 2 s. A deadline of a context ends a command at once. A
// cluster's client tries a node once, and looks every half second, while it is used, who
// serves which slot. By go-redis' defaults it is 5 s for a connection and for a command,
// 5 attempts, one look a minute, and a deadline ends nothing.
package connect
