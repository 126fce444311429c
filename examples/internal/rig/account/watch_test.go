package account

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchEnds: each way in which a run ends, and when.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	failure := errors.New("no room")
	never := func(context.Context) bool { return false }
	since := func(after time.Duration) func(context.Context) bool {
		began := time.Now()
		return func(context.Context) bool { return time.Since(began) >= after }
	}
	for name, test := range map[string]struct {
		set  func(w *Watch, cancel func())
		want time.Duration
		err  error
	}{
		"done": {func(w *Watch, _ func()) {
			done := make(chan struct{})
			w.Done = done
			time.AfterFunc(1700*time.Millisecond, func() { close(done) })
		}, 1700 * time.Millisecond, nil},
		"interrupted": {func(_ *Watch, cancel func()) { time.AfterFunc(900*time.Millisecond, cancel) },
			900 * time.Millisecond, nil},
		"the enqueuing failed": {func(w *Watch, _ func()) {
			enqueued := make(chan error, 1)
			w.Enqueued = enqueued
			time.AfterFunc(time.Second, func() { enqueued <- failure })
		}, time.Second, failure},
		"shown to be over": {func(w *Watch, _ func()) { w.Show = since(700 * time.Millisecond) },
			750 * time.Millisecond, nil},
		"looked to be over": {func(w *Watch, _ func()) { w.Look = since(0) }, 2 * time.Second, nil},
		"looks only when all is enqueued": {func(w *Watch, _ func()) {
			enqueued := make(chan error, 1)
			w.Enqueued, w.Look = enqueued, since(0)
			time.AfterFunc(5*time.Second, func() { enqueued <- nil })
		}, 6 * time.Second, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began, w := time.Now(), Watch{Show: never, Look: never, Every: 2 * time.Second}
			test.set(&w, cancel)
			if err := w.Wait(ctx); !errors.Is(err, test.err) || time.Since(began) != test.want {
				t.Errorf("%s: ended after %s with %v, want %s, %v", name, time.Since(began), err, test.want, test.err)
			}
		})
	}
}
