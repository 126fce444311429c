package redistest

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

// portRange hands out the loopback ports between two, each once: a stopped server and a proxy that
// refuses want their own port back.
//
// Test binaries run side by side. So that none takes a port that another one has freed for a while, and gets
// calls that are meant for the other, a process claims ports in blocks: it listens on the first port of a
// block, which it hands out to nobody, as long as it lives.
type portRange struct {
	first, last int // last is not handed out

	mu     sync.Mutex
	blocks int            // looked at so far, claimed or not
	claims []net.Listener // kept open: their ports are the claims
	block  []int          // ports of the latest claim that are not handed out yet
}

// blockSize is how many ports a claim takes. A tenth of the blocks is enough for most packages.
const blockSize = 50

// next returns a port that nobody has had yet, or 0 for any free port when all blocks are claimed.
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
			continue // another process has it
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
