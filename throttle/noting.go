package throttle

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/lanes"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

const (
	noteEvery = time.Minute
	noteTurn  = 50 * time.Second // for how long no other process notes the backlog; less than noteEvery
	noteIdle  = 300              // after reading the line, no process reads it for this many times as long as that took
)

// noting is when this process next tries to note the backlog.
type noting struct{ due atomic.Int64 } // Unix nanoseconds by the local clock; 0: Redis has not answered yet

// noteIfDue is called with each answer of Redis. A minute after the first answer, and once a minute
// from then on, it notes the backlog unless another process does. The work is done in a goroutine, as
// in publishIfDue; an error is only logged.
func (t *Throttle) noteIfDue(at time.Time) {
	due := t.noting.due.Load()
	if at.UnixNano() < due || t.now != nil {
		return
	}
	if !t.noting.due.CompareAndSwap(due, at.Add(noteEvery).UnixNano()) || due == 0 {
		return
	}
	t.sign.publishing.Go(func() {
		if err := t.note(context.Background()); err != nil {
			t.options.Logger.Debug("throttle: the backlog could not be noted", zap.Error(err))
		}
	})
}

// note notes the backlog, if no other process has done so just now.
func (t *Throttle) note(ctx context.Context) error {
	turn := t.keys.prefix + "noting"
	now, is, err := t.redis.taken(ctx, turn, noteTurn)
	if err != nil || !is {
		return err
	}
	began := time.Now()
	jobs, waited, err := t.backlog(ctx, now)
	if took := time.Since(began) * noteIdle; took > noteTurn {
		_ = t.redis.lives(ctx, turn, took) // if this fails, the line is read again sooner
	}
	if err != nil {
		return err
	}
	text := wire.BacklogText(now, jobs, waited)
	return t.redis.pushed(ctx, t.keys.prefix+"backlog", text, wire.MostBacklogs, wire.BacklogsKept)
}

// backlog reads how many jobs wait in line, and how long the job that came first has waited. If there are too many
// lanes or jobs to read, jobs is wire.Uncounted.
func (t *Throttle) backlog(ctx context.Context, now time.Time) (jobs int64, waited time.Duration, err error) {
	r, err := lanes.Read(ctx, t.lanesScript())
	if errors.Is(err, lanes.ErrTooMany) {
		return wire.Uncounted, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	for _, l := range r.Lanes {
		jobs += l.Jobs
	}
	for _, q := range r.Snapshot.Queues {
		for _, f := range q.Flows {
			for _, standing := range f.Lanes {
				if since := wire.Instant(standing.Arrival); !since.IsZero() {
					waited = max(waited, now.Sub(since))
				}
			}
		}
	}
	return jobs, waited, nil
}
