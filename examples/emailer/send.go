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

// send is the handler of a task: it runs at the granted start. The mail is charged its
// weight whether the server accepts or refuses it; if the server asks to wait, the
// charge is given back.
func (e *emailer) send(ctx context.Context, task *asynq.Task) error {
	m := e.campaign.ByID[string(task.Payload())]
	if m == nil {
		return fmt.Errorf("emailer: no mail %q in this campaign: %w", task.Payload(), asynq.SkipRetry)
	}
	err := e.mailer.Send(ctx, m)
	// No worker sends to this domain for now. The charge is given back, the mail runs
	// again after the pause, and no retry is spent.
	if wait, asked := upstream.SMTPWait(err); asked {
		return worker.AskedToWait(scopeDomain, wait, err)
	}
	var refusal *smtp.RefusedError
	if errors.As(err, &refusal) { // 5xx: never again
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err // nil, or asynq tries again
}
