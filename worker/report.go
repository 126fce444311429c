package worker

import (
	"context"
	"errors"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Report adapts the limits of the task's key in a scope to an answer of the key's upstream, as
// throttle.Throttle.Report does. Call it in a handler with each answer. A zero r.Started
// becomes the task's start; r.RetryAfter is cut to Options.MaxAskedWait. If a handler returns a
// WaitError, the Shaper reports the refusal. The call is carried out even if the
// handler's own context is over. If several shapers wrap a handler, Report reports to the
// innermost that has the scope.
//
// Its errors: ErrNoGrant, also if no grant has the scope, and those of
// throttle.Throttle.Report.
func Report(ctx context.Context, scope string, r throttle.Report) (throttle.Adaptation, error) {
	g := grantIn(ctx, scope)
	if g == nil {
		return throttle.Adaptation{}, ErrNoGrant
	}
	return g.shaper.report(ctx, g.Reservation, scope, r)
}

func (s *Shaper) report(ctx context.Context, granted throttle.Reservation, scope string,
	r throttle.Report) (throttle.Adaptation, error) {
	r.RetryAfter = min(r.RetryAfter, s.options.MaxAskedWait)
	if r.Started.IsZero() {
		r.Started = granted.Start
	}
	a, err := s.throttle.Report(context.WithoutCancel(ctx), scope, granted.Job.Keys[scope], r)
	s.puller.answered()
	return a, err
}

// closeKey closes a scope key as its upstream asked, and returns until when. In a scope with a
// Floor it reports the refusal, and follows is true; in any other scope it pauses the key.
func (s *Shaper) closeKey(ctx context.Context, granted throttle.Reservation,
	wait *WaitError) (ends time.Time, follows bool, err error) {
	refused := throttle.Report{Refused: true}
	if !wait.Guessed {
		refused.RetryAfter = wait.Delay
	}
	a, err := s.report(ctx, granted, wait.Scope, refused)
	var rigid *throttle.OptionError
	if errors.As(err, &rigid) { // the scope has no Floor
		ends, err = s.looks.Pause(ctx, wait.Scope, granted.Job.Keys[wait.Scope], time.Now().Add(wait.Delay),
			inspect.Why("the upstream asked to wait"), inspect.ForUpstream())
		s.puller.answered()
		return ends, false, err
	}
	return a.Paused, true, err
}
