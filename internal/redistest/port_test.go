package redistest

import (
	"net"
	"strconv"
	"testing"
)

// TestPortsOfTwoProcesses: two ranges over the same ports, as two test binaries have them, hand out no
// port twice, although nothing listens on these ports.
func TestPortsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	const first, blocks = 19000, 6 // below the ports that servers of tests get
	last := first + blocks*blockSize
	both := []*portRange{{first: first, last: last}, {first: first, last: last}}
	t.Cleanup(func() {
		for _, r := range both {
			for _, claim := range r.claims {
				_ = claim.Close()
			}
		}
	})
	had := make(map[int]bool)
	for n := 0; ; n++ {
		port := both[n%2].next()
		if port == 0 { // all blocks are claimed, by these two or by another program
			break
		}
		if port <= first || port >= last || had[port] {
			t.Fatalf("port %d was handed out, want one of its own from %d to %d", port, first, last)
		}
		had[port] = true
	}
	if want := len(both[0].claims) * (blockSize - 1); len(had) < want || want == 0 {
		t.Errorf("%d ports were handed out, want %d at least", len(had), want)
	}
	for _, claim := range both[0].claims {
		_, text, _ := net.SplitHostPort(claim.Addr().String())
		if port, _ := strconv.Atoi(text); had[port] {
			t.Errorf("port %d is the claim on a block, and was handed out", port)
		}
	}
}
