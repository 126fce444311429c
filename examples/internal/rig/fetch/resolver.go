package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// resolvedFor is how long an address is used before it is looked up anew.
const resolvedFor = 5 * time.Minute

// ErrForbiddenAddress says that a host's address is not public. A link may lead to such an address to make the crawler
// fetch what only the crawler can reach.
var ErrForbiddenAddress = errors.New("leads to an address that is not public")

// Resolver finds the address of a host, and connects to no other. It is safe for
// concurrent use.
type Resolver struct {
	// Own maps the addresses of the bundled web to the addresses at which it really listens, since a machine may have
	// 127.0.0.1 alone. No other addresses are allowed that are not public.
	Own    map[netip.Addr]string
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	known map[string]resolved
}

type resolved struct {
	addr netip.Addr
	at   time.Time
}

// NewResolver returns a resolver that asks the system.
func NewResolver() *Resolver {
	return &Resolver{Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
}

// Address returns where requests to a host go: the first of its addresses, which has to be public.
func (r *Resolver) Address(ctx context.Context, host string) (netip.Addr, error) {
	r.mu.Lock()
	one, found := r.known[host]
	r.mu.Unlock()
	if found && time.Since(one.at) < resolvedFor {
		return one.addr, nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		all, err := r.Lookup(ctx, host)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("has no address: %w", err)
		}
		if len(all) == 0 {
			return netip.Addr{}, errors.New("has no address")
		}
		addr = all[0]
	}
	addr = addr.Unmap().WithZone("")
	if _, own := r.Own[addr]; !own && !public(addr) {
		return netip.Addr{}, ErrForbiddenAddress
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = make(map[string]resolved)
	}
	r.known[host] = resolved{addr: addr, at: time.Now()}
	return addr, nil
}

// dial connects to a host. The address is checked here too, where the connection is made, so that no way around the
// check is left.
func (r *Resolver) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	addr, err := r.Address(ctx, host)
	if err != nil {
		return nil, err
	}
	to, most := net.JoinHostPort(addr.String(), port), OnTheWay*Kilobyte
	if listens, own := r.Own[addr]; own {
		to, most = listens, most/4 // Linux takes twice that, and the host's own buffers come to it
	}
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, to)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(most) // more only comes when this is read; without it more is on the way
	}
	return conn, nil
}

// notPublic are the address ranges that IANA has set apart and package netip does not know: for internal networks, for
// tests and examples, and addresses that contain an IPv4 address.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// public reports whether an address is one of the public network.
func public(addr netip.Addr) bool {
	addr = addr.Unmap()
	if !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return false
	}
	for _, prefix := range notPublic {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}
