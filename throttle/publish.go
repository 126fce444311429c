package throttle

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

const (
	publishEvery = 10 * time.Minute
	publishAgain = time.Minute // after a failure
)

// signOfLife is when a process next publishes its configuration.
type signOfLife struct {
	due   atomic.Int64 // Unix nanoseconds by the local clock
	since time.Time    // on Redis' clock; only the goroutine that publishes uses it

	publishing sync.WaitGroup // the goroutine
}

// publishIfDue is called with each answer of Redis. If publishing is due, it publishes in a goroutine that ends
// after twice Options.Timeout; an error is only logged.
func (t *Throttle) publishIfDue(at time.Time) {
	due := t.sign.due.Load()
	if at.UnixNano() < due || t.now != nil { // only tests set now
		return
	}
	if !t.sign.due.CompareAndSwap(due, at.Add(publishAgain).UnixNano()) {
		return
	}
	t.sign.publishing.Go(func() {
		if err := t.publish(context.Background()); err != nil {
			t.options.Logger.Debug("throttle: the configuration could not be published", zap.Error(err))
			return
		}
		t.sign.due.Store(at.Add(publishEvery).UnixNano())
	})
}

// hasten lets a process whose jobs begin later than a margin publish again a minute after the last time,
// so that Check reports it soon.
func (s *signOfLife) hasten(at time.Time) {
	if due := s.due.Load(); due > at.Add(publishAgain).UnixNano() {
		s.due.CompareAndSwap(due, due-int64(publishEvery-publishAgain))
	}
}

// publish publishes the configuration of this process, removes processes that are too old, and logs a
// live process that is configured differently.
func (t *Throttle) publish(ctx context.Context) error {
	key := wire.ProcessesKey(t.name)
	found, err := t.redis.fields(ctx, key)
	if err != nil {
		return err
	}
	self := t.self()
	if t.sign.since.IsZero() {
		t.sign.since = found.now
	}
	self.Since, self.Seen = t.sign.since, found.now
	text, err := json.Marshal(self)
	if err != nil {
		return err
	}
	if err := t.redis.setField(ctx, key, self.ID, string(text), publishedFor, outdated(found)); err != nil {
		return err
	}
	t.logDifference(self, processesOf(found))
	return nil
}

// outdated are the fields of processes that are too old, and those that cannot be read.
func outdated(found fields) []string {
	var ids []string
	for id, text := range found.of {
		var seen struct{ Seen time.Time }
		if err := json.Unmarshal([]byte(text), &seen); err != nil || found.now.Sub(seen.Seen) > publishedFor {
			ids = append(ids, id)
		}
	}
	return ids
}

func (t *Throttle) logDifference(self Process, others []Process) {
	for _, other := range others {
		if what := self.Differences(other); other.Alive && len(what) > 0 {
			t.options.Logger.Warn("throttle: another process is configured differently",
				zap.String("throttle", t.name), zap.Stringer("process", other), zap.String("here", strings.Join(what, "; ")))
			return
		}
	}
}
