package dashboard

import (
	"context"
	"errors"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// How the history of a scope key is read.
const (
	mostBars     = 24              // parts of its longest window, each a call
	historyEvery = 5 * time.Second // as often at most
)

// due reports whether the history is old enough to be read again: half a bar has passed.
func (h history) due(u inspect.Usage, now time.Time) bool {
	longest, is := longest(u)
	return is && (h.limit != longest || now.Sub(h.read) >= max(historyEvery, longest.Window/mostBars/2))
}

// longest returns the limit with the longest window among those that count starts.
func longest(u inspect.Usage) (throttle.Limit, bool) {
	for i := len(u.Limits) - 1; i >= 0; i-- {
		if limit := u.Limits[i].Limit; limit.Units != throttle.Unlimited && limit.Window > 0 {
			return limit, true
		}
	}
	return throttle.Limit{}, false
}

// readHistory reads the units that started under a scope key in each part of its longest window.
// The history has no bars if no limit counts, as in a scope that is off.
func (b *board) readHistory(ctx context.Context, u inspect.Usage) (history, error) {
	limit, _ := longest(u)
	h := history{read: b.taken, limit: limit}
	step := limit.Window / mostBars
	bars := make([]int64, mostBars)
	err := together(mostBars, func(i int) error {
		ago := time.Duration(mostBars-i) * step
		var err error
		bars[i], err = b.throttle.Count(ctx, u.Scope, u.Key, ago, ago-step)
		return err
	})
	var uncounted *throttle.ArgumentError
	if errors.As(err, &uncounted) {
		return h, nil
	}
	h.bars = bars
	return h, err
}
