package redistest

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

// portRange hands out the loopback ports between two ports, each once: a server that was stopped, or a proxy that
// refuses connections for a while, needs its own port again later.
//
// Test binaries run side by side. A process must not take a port that another process has freed for a while, or it
// would get the calls that are meant for the other. So a process claims ports in blocks: as long as it lives, it
// listens on the first port of each of its blocks, and never hands out that port.
type portRange struct {
	first, last int // last is not handed out

	mu     sync.Mutex
	blocks int            // how many blocks this process has tried to claim so far
	claims []net.Listener // kept open: their ports are the claims
	block  []int          // ports of the latest claim that are not handed out yet
}

// blockSize is how many ports a claim takes. A tenth of the blocks is enough for most packages.
const blockSize = 50

// next returns a port that it has not returned before. When all blocks are claimed, it returns 0, which stands for
// any free port.
func (r *portRange) next() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	blocks := (r.last - r.first) / blockSize
	for len(r.block) == 0 {
		if r.blocks == blocks {
			return 0
		}
		first := r.first + (os.Getpid()+r.blocks)%blocks*blockSize
		r.blocks++
		claim, err := listen(first)
		if err != nil {
			continue // another process has claimed this block
		}
		r.claims = append(r.claims, claim)
		for port := first + 1; port < first+blockSize; port++ {
			r.block = append(r.block, port)
		}
	}
	port := r.block[0]
	r.block = r.block[1:]
	return port
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// listen listens on a port of its own.
func (r *portRange) listen() (net.Listener, error) {
	var err error
	for range 100 {
		var listener net.Listener
		if listener, err = listen(r.next()); err == nil {
			return listener, nil
		}
	}
	return nil, fmt.Errorf("redistest: no free port: %w", err)
}

// addr returns a loopback address that is free now.
func (r *portRange) addr() (string, error) {
	listener, err := r.listen()
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
