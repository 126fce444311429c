package dashboard

import (
	"sync"
	"sync/atomic"
)

// mostCalls is how many calls of Redis one reading makes at the same time: the client may belong to
// a program with other work.
const mostCalls = 8

// together calls do for 0 to n-1, several at the same time. It returns the first error, and starts
// no call after it.
func together(n int, do func(i int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	var once sync.Once
	var first error
	for range min(n, mostCalls) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
				}
			}
		})
	}
	group.Wait()
	return first
}
