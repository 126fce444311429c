package throttle

import (
	"context"
	"encoding/json"
	"slices"
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
	due   atomic.Int64              // Unix nanoseconds by the local clock
	since atomic.Pointer[time.Time] // on Redis' clock; nil until it is first published
	turn  chan struct{}             // full while the configuration is being published

	publishing sync.WaitGroup // the goroutines that publish the configuration and note the backlog
}

// publishIfDue is called with each answer of Redis. If publishing is due, it publishes in a goroutine that makes two
// calls, each for Options.Timeout at most; an error is only logged.
func (t *Throttle) publishIfDue(at time.Time) {
	due := t.sign.due.Load()
	if at.UnixNano() < due || t.now != nil { // only tests set now
		return
	}
	again := at.Add(publishAgain).UnixNano()
	if !t.sign.due.CompareAndSwap(due, again) {
		return
	}
	t.sign.publishing.Go(func() {
		t.sign.turn <- struct{}{}
		defer func() { <-t.sign.turn }()
		if t.sign.due.Load() != again { // the process has ended meanwhile
			return
		}
		if err := t.publish(context.Background(), false); err != nil {
			t.options.Logger.Debug("throttle: the configuration could not be published", zap.Error(err))
			return
		}
		t.sign.due.CompareAndSwap(again, at.Add(publishEvery).UnixNano())
	})
}

// hasten lets a process whose jobs begin later than a margin publish again a minute after the last time,
// so that Check reports it soon.
func (s *signOfLife) hasten(at time.Time) {
	if due := s.due.Load(); due > at.Add(publishAgain).UnixNano() {
		s.due.CompareAndSwap(due, due-int64(publishEvery-publishAgain))
	}
}

// end publishes that this process ends, if it has published anything.
func (t *Throttle) end(ctx context.Context) error {
	if t.sign.due.Swap(time.Now().Add(publishAgain).UnixNano()) == 0 {
		return nil
	}
	select { // what is being published says that the process is alive
	case t.sign.turn <- struct{}{}:
		defer func() { <-t.sign.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return t.publish(ctx, true)
}

// publish publishes the configuration of this process and whether the process ends, removes processes that are
// outdated, and logs a live process that is configured differently.
func (t *Throttle) publish(ctx context.Context, ended bool) error {
	key := wire.ProcessesKey(t.name)
	found, err := t.redis.fields(ctx, key)
	if err != nil {
		return err
	}
	self := t.self()
	t.sign.since.CompareAndSwap(nil, &found.now)
	self.Since, self.Seen, self.Ended = *t.sign.since.Load(), found.now, ended
	text, err := json.Marshal(self)
	if err != nil {
		return err
	}
	if err := t.redis.setField(ctx, key, self.ID, string(text), publishedFor, outdated(found)); err != nil {
		return err
	}
	if !ended {
		t.logDifference(self, processesOf(found))
	}
	return nil
}

// outdated are the fields of processes that are too old, those that cannot be read, and those of ended processes of
// which mostEnded have been seen later.
func outdated(found fields) []string {
	all := processesOf(found)
	slices.SortFunc(all, func(a, b Process) int { return b.Seen.Compare(a.Seen) })
	kept, ended := make(map[string]bool, len(all)), 0
	for _, p := range all {
		if !p.Alive {
			ended++
		}
		kept[p.ID] = p.Alive || ended <= mostEnded
	}
	var ids []string
	for id := range found.of {
		if !kept[id] {
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
