package worker

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPatienceOfManyGoroutines: each of many goroutines that ask at once doubles the delay.
func TestPatienceOfManyGoroutines(t *testing.T) {
	t.Parallel()
	p := newPatience()
	var mu sync.Mutex
	delays := make(map[time.Duration]int)
	atOnce(8, func() {
		delay := p.next("job", time.Second)
		mu.Lock()
		defer mu.Unlock()
		delays[delay]++
	})
	for i := range 8 {
		if delay := time.Second << i; delays[delay] != 1 {
			t.Errorf("%d had to wait %s, want one", delays[delay], delay)
		}
	}
}

// TestSeldomOfManyGoroutines: of many goroutines that would warn at once, one does, each second.
func TestSeldomOfManyGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s seldom
		for range 5 {
			var due atomic.Int64
			atOnce(100, func() {
				if s.due(time.Second) {
					due.Add(1)
				}
			})
			if got := due.Load(); got != 1 {
				t.Errorf("%d warn, want one", got)
			}
			time.Sleep(time.Second)
		}
	})
}

// atOnce calls a function in n goroutines side by side.
func atOnce(n int, call func()) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for range n {
		wg.Go(func() {
			<-begin
			call()
		})
	}
	close(begin)
	wg.Wait()
}
