package account

import (
	"context"
	"time"
)

const progressEvery = 250 * time.Millisecond

// Watch shows how a run goes on until it is over.
type Watch struct {
	Done     <-chan struct{}                       // closed when all jobs have ended; may be nil
	Enqueued <-chan error                          // gets what became of the enqueuing; nil if all jobs are enqueued
	Show     func(ctx context.Context) (over bool) // shows the progress
	Look     func(ctx context.Context) (over bool) // is called once all jobs are enqueued
	Every    time.Duration                         // between two looks
}

// Wait returns when the run is over, when ctx has ended, or with the error of the enqueuing.
func (w Watch) Wait(ctx context.Context) error {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	look := time.NewTicker(w.Every)
	defer look.Stop()
	for over := false; !over; {
		select {
		case <-w.Done:
			return nil
		case <-ctx.Done():
			return nil
		case err := <-w.Enqueued:
			if err != nil && ctx.Err() == nil {
				return err
			}
			w.Enqueued = nil
		case <-look.C:
			over = w.Enqueued == nil && w.Look(ctx)
		case <-tick.C:
			over = w.Show(ctx)
		}
	}
	return nil
}
