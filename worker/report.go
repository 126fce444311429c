package worker

import (
	"context"
	"errors"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Report has the limits of the task's key of a scope follow what its upstream said, as
// throttle.Throttle.Report does: call it in a handler with each answer. Where r.Started is
// zero, the upstream was asked when the task was granted; r.RetryAfter is at most
// Options.MaxAskedWait. A handler that returns a WaitError
// has reported the refusal with that. The call ends even if the handler's own context is over.
// Where several shapers are wrapped around a handler, it is about the innermost that has the
// scope.
//
// Its errors: ErrNoGrant, also where no grant has the scope, and those of
// throttle.Throttle.Report.
func Report(ctx context.Context, scope string, r throttle.Report) (throttle.Adaptation, error) {
	for g := grantOf(ctx); g != nil; g = g.outer {
		if g.shaper.paces(g.Job, scope) {
			return g.shaper.report(ctx, g.Reservation, scope, r)
		}
	}
	return throttle.Adaptation{}, ErrNoGrant
}

func (s *Shaper) report(ctx context.Context, granted throttle.Reservation, scope string,
	r throttle.Report) (throttle.Adaptation, error) {
	r.RetryAfter = min(r.RetryAfter, s.options.MaxAskedWait)
	if r.Started.IsZero() {
		r.Started = granted.Start
	}
	a, err := s.throttle.Report(context.WithoutCancel(ctx), scope, granted.Job.Keys[scope], r)
	s.puller.heard()
	return a, err
}

// closeKey closes a scope key as its upstream asked, and tells until when: its limits follow the
// refusal, or it is paused where they do not follow.
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
		s.puller.heard()
		return ends, false, err
	}
	return a.Paused, true, err
}
