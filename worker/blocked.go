package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// mostBlockedFor is the longest time for which a task is put back because it weighs more than a
// limit that was set at run time; Options.Backoff if that is longer.
const mostBlockedFor = 5 * time.Minute

// awaitLimits puts back a task that weighs more than a limit that was set at run time, each time
// for twice as long. A task that has to stay waits here.
func (s *Shaper) awaitLimits(ctx context.Context, a attempt, job throttle.Job, cause error, stays bool) error {
	if err := s.expiredUnasked(a, job); err != nil {
		return err
	}
	delay := s.blocked.next(job.ID, s.options.Backoff)
	if stays {
		return s.stay(ctx, a, job, delay)
	}
	return s.putBackFor(ctx, a, job, delay, cause)
}

// isBlocked reports whether a job weighs more than a limit that was set at run time.
func isBlocked(err error) bool {
	var blocked *throttle.BlockedError
	return errors.As(err, &blocked)
}

// patience remembers for how long each job was put back last, to double that time. A forgotten job
// begins anew.
type patience struct {
	mu     sync.Mutex
	delays map[string]time.Duration
}

// mostPatience is how many jobs are remembered, at most.
const mostPatience = 10_000

func newPatience() *patience { return &patience{delays: make(map[string]time.Duration)} }

func (p *patience) next(job string, first time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay, known := p.delays[job]
	if !known && len(p.delays) >= mostPatience {
		clear(p.delays)
	}
	delay = min(max(first, 2*delay), max(first, mostBlockedFor))
	p.delays[job] = delay
	return delay
}

func (p *patience) forget(job string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.delays, job)
}
