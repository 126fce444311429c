package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// send is the handler of a task: it runs at the start that was granted. The charge is
// the mail's weight, whether the server takes the mail or refuses it; a server that asks
// to wait has not used it.
func (e *emailer) send(ctx context.Context, task *asynq.Task) error {
	m := e.campaign.ByID[string(task.Payload())]
	if m == nil {
		return fmt.Errorf("emailer: no mail %q in this campaign: %w", task.Payload(), asynq.SkipRetry)
	}
	err := e.mailer.Send(ctx, m)
	// Nothing more to this domain for now, by any worker. The charge is given back, the
	// mail comes again after the pause, and no retry is spent.
	if wait, asked := upstream.SMTPWait(err); asked {
		return worker.AskedToWait(scopeDomain, wait, err)
	}
	var refusal *smtp.RefusedError
	if errors.As(err, &refusal) { // 5xx: never again
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err // nil, or asynq tries again
}
