package dashboard

import (
	"context"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// tooOld is how old the last board may be for a rate since then.
const tooOld = 5 * time.Second

// count computes the rates since the board before.
func (b *board) count(ctx context.Context, r *reader, before *board) {
	if r.stats != nil {
		b.stats = r.stats()
	}
	all, is := b.keys[scopeKey{Scope: throttle.Global}]
	if before == nil || before.err != nil || b.taken.Sub(before.taken) > tooOld {
		b.started, b.putBack = rate{}, rate{}
		return
	}
	if r.stats != nil {
		elapsed := b.taken.Sub(before.taken).Seconds()
		b.putBack = b.putBack.and(float64(b.stats.PutBack-before.stats.PutBack) / elapsed)
	}
	if was := before.keys[scopeKey{Scope: throttle.Global}]; is && was != nil {
		if perSecond, known := b.startedSince(ctx, was.usage, all.usage); known {
			b.started = b.started.and(perSecond)
		}
	}
}

func (r rate) and(perSecond float64) rate { return rate{true, with(r.last, max(0, perSecond))} }

// now returns the last point, per second.
func (r rate) now() float64 {
	if len(r.last) == 0 {
		return 0
	}
	return r.last[len(r.last)-1]
}

// startedSince returns how many units started per second between two readings of a scope key. It counts
// them if a limit's precision is a quarter of that time or finer; else it takes the growth of the used units, which is
// less if units left a window meanwhile. Of a window that is shorter than that time, it takes the used units.
func (b *board) startedSince(ctx context.Context, was, is inspect.Usage) (perSecond float64, known bool) {
	elapsed := is.Now.Sub(was.Now)
	if elapsed <= 0 {
		return 0, false
	}
	for _, l := range is.Limits {
		switch {
		case l.Limit.Units == throttle.Unlimited || l.Limit.Window == 0:
		case l.Limit.Window < elapsed:
			return float64(l.Used) / l.Limit.Window.Seconds(), true
		case l.Limit.WithDefaults().Precision <= elapsed/4:
			if n, err := b.throttle.Count(ctx, is.Scope, is.Key, elapsed, 0); err == nil {
				return float64(n) / elapsed.Seconds(), true
			}
		}
	}
	for _, l := range is.Limits {
		for _, before := range was.Limits {
			if l.Limit.Window > 0 && before.Limit.Window == l.Limit.Window && l.Limit.Units != throttle.Unlimited {
				perSecond, known = max(perSecond, float64(l.Used-before.Used)/elapsed.Seconds()), true
			}
		}
	}
	return perSecond, known
}
