package redistest

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

// handedOut holds the ports that this process has taken, each only once: a stopped server
// wants its own port back.
var handedOut struct {
	sync.Mutex
	ports map[int]struct{}
}

// nextPort returns a port that this process has not used yet, at most last. Test
// binaries that run side by side begin at different ports.
func nextPort(last int) int {
	const apart = 97
	handedOut.Lock()
	defer handedOut.Unlock()
	if handedOut.ports == nil {
		handedOut.ports = make(map[int]struct{})
	}
	ports := last - firstPort
	begin := os.Getpid() * apart
	for i := range ports {
		port := firstPort + (begin+i)%ports
		if _, had := handedOut.ports[port]; !had {
			handedOut.ports[port] = struct{}{}
			return port
		}
	}
	return 0 // any free port: all ports up to last have been used
}

// listenFree listens on a free loopback port, at most last.
func listenFree(last int) (net.Listener, error) {
	var err error
	for range 100 {
		var listener net.Listener
		listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(nextPort(last))))
		if err == nil {
			return listener, nil
		}
	}
	return nil, fmt.Errorf("redistest: no free port: %w", err)
}

// freeAddr returns a loopback address that is free now, with a port of at most last.
func freeAddr(last int) (string, error) {
	listener, err := listenFree(last)
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
