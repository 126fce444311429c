package connect

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// kind is what the URL names.
type kind int

const (
	ofServer kind = iota
	ofSocket
	ofSentinels
	ofCluster
)

var schemes = map[string]struct {
	kind kind
	tls  bool
	port string // where the address has none
}{
	"redis":           {ofServer, false, "6379"},
	"rediss":          {ofServer, true, "6379"},
	"unix":            {ofSocket, false, ""},
	"redis-socket":    {ofSocket, false, ""},
	"redis-sentinel":  {ofSentinels, false, "26379"},
	"rediss-sentinel": {ofSentinels, true, "26379"},
	"redis-cluster":   {ofCluster, false, "6379"},
	"rediss-cluster":  {ofCluster, true, "6379"},
}

const schemeNames = "redis, rediss, unix, redis-sentinel, rediss-sentinel, redis-cluster or rediss-cluster"

// parts are the parts of a URL. net/url accepts one host only, and its errors repeat
// what it cannot parse.
type parts struct {
	scheme string
	kind   kind
	tls    bool

	user, password             string
	serverUser, serverPassword string // behind sentinels
	addrs                      []string
	path                       string
	query                      url.Values // without users and passwords
}

func parse(text string) (*parts, error) {
	name, rest, ok := strings.Cut(text, "://")
	if !ok {
		name, rest = "redis", text
		if _, _, err := net.SplitHostPort(text); err != nil || strings.ContainsAny(text, "@/?#") {
			return nil, &URLError{Part: "address", Reason: "want host:port or a URL"}
		}
	}
	scheme, known := schemes[name]
	if !known {
		return nil, &URLError{Part: "scheme", Reason: "want " + schemeNames}
	}
	p := &parts{scheme: name, kind: scheme.kind, tls: scheme.tls}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	authority, tail := rest[:end], rest[end:]
	if strings.Contains(tail, "@") {
		return nil,
			p.bad("user",
				"an @ behind the addresses: escape / ? # in a user or password, and @ in a parameter (%2F %3F %23 %40)")
	}
	if err := p.setUser(authority); err != nil {
		return nil, err
	}
	if err := p.setAddrs(authority[strings.LastIndex(authority, "@")+1:], scheme.port); err != nil {
		return nil, err
	}
	if err := p.setTail(tail); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *parts) bad(part, reason string) *URLError {
	return &URLError{Scheme: p.scheme, Part: part, Reason: reason}
}

// refusal is the error for a URL that go-redis refuses. go-redis was not given a password.
func (p *parts) refusal(err error) *URLError {
	return p.bad("go-redis", strings.TrimPrefix(err.Error(), "redis: "))
}

func (p *parts) setUser(authority string) error {
	at := strings.LastIndex(authority, "@")
	if at < 0 {
		return nil
	}
	user, password, _ := strings.Cut(authority[:at], ":")
	var errUser, errPassword error
	p.user, errUser = url.PathUnescape(user)
	p.password, errPassword = url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return p.bad("user", "a % that begins no escape; write %25")
	}
	return nil
}

func (p *parts) setAddrs(list, port string) error {
	if p.kind == ofSocket {
		if list != "" {
			return p.bad("address", "want none before the path of the socket: "+p.scheme+":///path")
		}
		return nil
	}
	for host := range strings.SplitSeq(list, ",") {
		addr, ok := address(host, port)
		if !ok || host == "" && p.kind != ofServer {
			return p.bad("address", "want host or host:port; only sentinels and a cluster have several")
		}
		p.addrs = append(p.addrs, addr)
	}
	if p.kind == ofServer && len(p.addrs) > 1 {
		return p.bad("address", "one server has one address; want redis-sentinel or redis-cluster?")
	}
	return nil
}

// address completes a host to host:port. As in go-redis, an empty host is this machine.
func address(text, port string) (string, bool) {
	host, own, err := net.SplitHostPort(text)
	switch {
	case err == nil:
		port = own
	case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
		host = text[1 : len(text)-1]
	case strings.ContainsAny(text, ":[]"):
		return "", false
	default:
		host = text
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", false
	}
	name := strings.Trim(host, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:")
	if name != "" {
		return "", false
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), true
}

// readsReplicas are the parameters of go-redis that are refused.
var readsReplicas = []string{
	"read_only", "route_by_latency", "route_by_latency_tolerance", "route_randomly",
	"replica_only", "use_disconnected_replicas",
}

// mostOf bounds the numbers in parameters: with larger ones go-redis panics.
const mostOf = 1_000_000

func (p *parts) setTail(tail string) error {
	path, query, _ := strings.Cut(tail, "?")
	if strings.Contains(tail, "#") {
		return p.bad("path", "escape a # (%23)")
	}
	var err error
	if p.path, err = url.PathUnescape(path); err != nil {
		return p.bad("path", "a % that begins no escape; write %25")
	}
	if db := strings.Trim(p.path, "/"); db != "" && p.kind != ofSocket {
		n, err := strconv.Atoi(db)
		switch {
		case err != nil || n < 0:
			return p.bad("path", "want the number of a database, or nothing")
		case n != 0 && p.kind == ofCluster:
			return p.bad("path", "a cluster has one database, 0")
		}
	}
	if p.query, err = url.ParseQuery(query); err != nil {
		return p.bad("parameters", "cannot be parsed: escape a % or ; (%25 %3B)")
	}
	for name, values := range p.query {
		if slices.Contains(readsReplicas, name) {
			return p.bad("parameter "+name,
				"the client would read from replicas, which are out of date and run no script that writes")
		}
		for _, value := range values {
			if n, err := strconv.ParseFloat(value, 64); err == nil && (n < -1 || n > mostOf) &&
				name != "username" && name != "password" {
				return p.bad("parameter "+name, "is not between -1 and "+strconv.Itoa(mostOf))
			} else if err == nil && n < 0 && name == "pool_size" {
				return p.bad("parameter "+name, "is not between 0 and "+strconv.Itoa(mostOf))
			}
		}
	}
	p.setSentinelParameters()
	return nil
}

// setSentinelParameters renames asynq's parameter for the primary, and removes the server's
// user from the parameters that go-redis parses.
func (p *parts) setSentinelParameters() {
	if p.kind != ofSentinels {
		return
	}
	p.serverUser, p.serverPassword = p.query.Get("username"), p.query.Get("password")
	p.query.Del("username")
	p.query.Del("password")
	if p.query.Has("master") {
		p.query["master_name"] = p.query["master"]
		p.query.Del("master")
	}
}

// text returns the URL as go-redis parses it, without a user.
func (p *parts) text() string {
	u := url.URL{Scheme: "redis", Path: p.path, RawQuery: p.query.Encode()}
	switch {
	case p.kind == ofSocket:
		u.Scheme = "unix"
	case p.tls:
		u.Scheme = "rediss"
	}
	if len(p.addrs) > 0 {
		u.Host = p.addrs[0]
	}
	return u.String()
}
