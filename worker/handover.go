package worker

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// giving gives back the places of tasks that end at about the same time in one call: tasks that
// end while a call is under way go with the next one.
type giving struct {
	mu   sync.Mutex
	busy bool
	next *handover // nil: no task has ended since the last call
	last *handover // the latest; nil: no task has ended yet
}

// handover is one call, and the tasks that have ended.
type handover struct {
	ended []*run
	done  chan struct{}
}

// handOver gives back a task's places and wakes the tasks that get them. It does not wait: the
// channel is closed once the places are given back, or left to the runner.
func (p *puller) handOver(ended *run) (given <-chan struct{}) {
	g := &p.giving
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.next = &handover{done: make(chan struct{})}
		g.last = g.next
	}
	g.next.ended = append(g.next.ended, ended)
	given = g.next.done
	if !g.busy {
		g.busy = true
		go p.giveNext()
	}
	return given
}

// wait waits until the places of all tasks that have ended so far are given back, or left to the
// runner: calls are made one after another.
func (g *giving) wait() {
	g.mu.Lock()
	last := g.last
	g.mu.Unlock()
	if last != nil {
		<-last.done
	}
}

// giveNext makes the next call, and leaves the calls after it to another goroutine.
func (p *puller) giveNext() {
	g := &p.giving
	g.mu.Lock()
	h := g.next
	g.next = nil
	g.mu.Unlock()
	pulled, err := p.giveBack(granted(h.ended))
	if err != nil {
		p.shaper.runner.again(h.ended, err)
	}
	close(h.done)
	g.mu.Lock()
	g.busy = g.next != nil
	if g.busy {
		go p.giveNext()
	}
	g.mu.Unlock()
	if err == nil && len(pulled.Booked)+len(pulled.Overdue) > 0 {
		p.brought(pulled)
	}
}

// giveBack gives places back and, if jobs wait, pulls the line in the same call. It does not read from
// the answer whether a task still occupied its places: if a reply is lost, the client sends the call
// again, and the second reply says that these places are free already.
func (p *puller) giveBack(ended []throttle.Reservation) (throttle.Pulled, error) {
	ctx := context.Background()
	if !p.shaper.driver.Due().IsZero() && !p.shaper.isStopped() && !p.unwoken.Load() &&
		p.shaper.deployment.others(ctx) == nil {
		return p.shaper.driver.Pull(ctx, ended...)
	}
	_, err := p.shaper.throttle.Done(ctx, ended...)
	p.hurry() // jobs of other processes may wait
	return throttle.Pulled{}, err
}

// brought wakes the tasks that were pulled as places were given back. A task that is gone and
// cannot be taken out of line now is reported again by a later pull.
func (p *puller) brought(pulled throttle.Pulled) {
	if err := p.take(context.Background(), pulled); err != nil {
		p.shaper.log.Debug("worker: tasks that are gone cannot be taken out of line", zap.Error(err))
	}
	if pulled.Full {
		p.hurry()
	}
}
