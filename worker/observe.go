package worker

import (
	"context"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// begin waits for a granted start and reports to the throttle when the handler begins.
func (s *Shaper) begin(ctx context.Context, a attempt, r throttle.Reservation, stays bool) error {
	answered := time.Now()
	err := s.awaitStart(ctx, a, r, stays)
	if err == nil {
		s.driver.Started(r, answered)
	}
	return err
}

// countPutBack counts a task that is put back for a delay. The cause is nil if its reservation
// says why.
func (s *Shaper) countPutBack(r throttle.Reservation, delay time.Duration, cause error) {
	s.stats.putBack.Add(1)
	s.use.putBack()
	if s.observer != nil {
		s.observer.PutBack(throttle.PutBack{Throttle: s.name, Reservation: r, Delay: delay, Err: cause})
	}
}

// countEnd counts a task that is ended since it can never start.
func (s *Shaper) countEnd(job throttle.Job, why error) {
	s.stats.ended.Add(1)
	if s.observer != nil {
		s.observer.Ended(throttle.Ending{Throttle: s.name, Job: job, Err: why})
	}
}
