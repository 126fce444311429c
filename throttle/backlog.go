package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

const (
	noteEvery  = time.Minute
	noteTurn   = 50 * time.Second // for how long no other process notes: less than noteEvery
	noteIdle   = 300              // how many times as long as it took to read the line nobody reads it then
	mostNotes  = 720
	notesKept  = 12 * time.Hour
	uncounted  = -1 // Jobs, if more lanes wait than are read
	noteFormat = "%d %d %d"
)

// Backlog is how much waited in line at one instant.
type Backlog struct {
	At time.Time `json:"at"` // on Redis' clock
	// Jobs is how many jobs waited, without those that have a slot; negative if they were in
	// more than 20,000 lanes, which are not counted.
	Jobs int64 `json:"jobs"`
	// Waited is for how long the first job had waited; 0 if none waited or if that is not known.
	Waited time.Duration `json:"waited_ns"`
}

// Backlogs returns how much waited in line in the last twelve hours, the oldest first. One of the
// processes that decide notes it about once a minute, and less often if the line takes long to
// read. Minutes in which no process had an answer from Redis are missing. It blocks for one round
// trip and fails as Usage does.
func (t *Inspector) Backlogs(ctx context.Context) ([]Backlog, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	list, err := t.redis.list(ctx, t.keys.prefix+"backlog", 0, mostNotes-1)
	if err != nil {
		return nil, err
	}
	backlogs := make([]Backlog, 0, len(list))
	for _, text := range slices.Backward(list) {
		var at, jobs, waited int64
		if _, err := fmt.Sscanf(text, noteFormat, &at, &jobs, &waited); err == nil {
			backlogs = append(backlogs, Backlog{wire.Instant(at), jobs, time.Duration(waited) * time.Microsecond})
		}
	}
	return backlogs, nil
}

// noting is when this process next tries to note the backlog.
type noting struct{ due atomic.Int64 } // Unix nanoseconds by the local clock; 0: not yet

// noteIfDue is called with each answer of Redis. A minute after the first, and once a minute from
// then on, it notes the backlog unless another process does. It does so in a goroutine like the
// one that publishes; an error is only logged.
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
			t.options.Logger.Debug("throttle: what waits could not be noted", zap.Error(err))
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
	b, err := t.Inspector().backlog(ctx, now)
	if took := time.Since(began) * noteIdle; took > noteTurn {
		_ = t.redis.lives(ctx, turn, took) // if this fails, the line is read again sooner
	}
	if err != nil {
		return err
	}
	text := fmt.Sprintf(noteFormat, b.At.UnixMicro(), b.Jobs, b.Waited.Microseconds())
	return t.redis.pushed(ctx, t.keys.prefix+"backlog", text, mostNotes, notesKept)
}

// backlog reads what waits.
func (t *Inspector) backlog(ctx context.Context, now time.Time) (Backlog, error) {
	b := Backlog{At: now}
	lanes, err := t.Lanes(ctx)
	if errors.Is(err, errTooMany) {
		b.Jobs = uncounted
		return b, nil
	}
	for _, l := range lanes {
		b.Jobs += l.Jobs
		if !l.Since.IsZero() {
			b.Waited = max(b.Waited, now.Sub(l.Since))
		}
	}
	return b, err
}
