package fetch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestPublic(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		addr string
		want bool
	}{
		{"8.8.8.8", true}, {"93.184.215.14", true}, {"2606:4700::1111", true}, {"::ffff:8.8.8.8", true},
		{"127.0.0.1", false}, {"127.0.0.2", false}, {"0.0.0.0", false}, {"10.1.2.3", false}, {"172.16.0.1", false},
		{"192.168.1.1", false},
		{"169.254.169.254", false}, {"100.100.100.200", false}, {"192.0.2.1", false}, {"198.18.0.1", false},
		{"224.0.0.1", false}, {"255.255.255.255", false},
		{"::", false}, {"::1", false}, {"fe80::1", false}, {"fc00::1", false}, {"fd00:ec2::254", false},
		{"ff02::1", false}, {"2001:db8::1", false},
		{"::ffff:127.0.0.1", false}, {"::ffff:10.0.0.1", false}, {"::7f00:1", false}, {"64:ff9b::a00:1", false},
		{"2002:7f00:1::", false},
	} {
		if got := public(netip.MustParseAddr(row.addr)); got != row.want {
			t.Errorf("%s: got %v, want %v", row.addr, got, row.want)
		}
	}
}

// F66: the fetcher connects to no internal address, whatever name leads there.
func TestResolverRefusesPrivateAddresses(t *testing.T) {
	t.Parallel()
	names := map[string]string{
		"inside.example": "10.0.0.5", "metadata.example": "169.254.169.254", "loop.example": "127.0.0.1",
		"mapped.example": "::ffff:127.0.0.1", "own.example": "127.0.0.2", "beside.example": "127.0.0.3",
	}
	r := &Resolver{
		Own: map[netip.Addr]string{netip.MustParseAddr("127.0.0.2"): "127.0.0.1:1"},
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(names[host])}, nil
		},
	}
	for _, host := range []string{"inside.example", "metadata.example", "loop.example", "mapped.example", "beside.example",
		"127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "10.0.0.5"} {
		if addr, err := r.Address(t.Context(), host); !errors.Is(err, ErrForbiddenAddress) {
			t.Errorf("%s: got %s, %v", host, addr, err)
		}
		if _, err := r.dial(t.Context(), "tcp", net.JoinHostPort(host, "80")); !errors.Is(err, ErrForbiddenAddress) {
			t.Errorf("dial %s: got %v", host, err)
		}
	}
	if addr, err := r.Address(t.Context(), "own.example"); err != nil || addr.String() != "127.0.0.2" {
		t.Errorf("own.example: got %s, %v", addr, err)
	}
}

// A name whose address changes is checked again when the connection is made.
func TestResolverRefusesRebinding(t *testing.T) {
	t.Parallel()
	answers := []string{"8.8.8.8", "10.0.0.5"}
	r := &Resolver{Lookup: func(context.Context, string) ([]netip.Addr, error) {
		addr := netip.MustParseAddr(answers[0])
		answers = answers[1:]
		return []netip.Addr{addr}, nil
	}}
	if _, err := r.Address(t.Context(), "turns.example"); err != nil {
		t.Fatal(err)
	}
	r.known = nil // as if resolvedFor had passed
	if _, err := r.dial(t.Context(), "tcp", "turns.example:80"); !errors.Is(err, ErrForbiddenAddress) {
		t.Errorf("got %v", err)
	}
}
