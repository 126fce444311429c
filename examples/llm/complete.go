package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// complete is the handler of a task: it runs at the granted start, asks the
// provider, and keeps the answer as the task's result.
func (a *assistant) complete(ctx context.Context, task *asynq.Task) error {
	p, err := prompt.Read(task.Payload())
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	answer, err := a.provider.Complete(ctx, p.ID, a.request(p))
	switch {
	case chat.NeverConnected(err):
		return worker.Untouched(err)
	case err != nil: // the use is unknown: the charge stays, and asynq tries again
		return err
	}
	if wait := a.report(ctx, answer); wait != nil {
		return wait
	}
	if answer.Status != http.StatusOK {
		return refusal(answer)
	}
	a.settle(ctx, p, answer.Usage)
	_, err = task.ResultWriter().Write([]byte(answer.Text))
	return err
}

// request returns the request for a prompt. The answer to a person's prompt is streamed.
func (a *assistant) request(p *prompt.Prompt) chat.Request {
	return chat.Request{
		Model: a.model, Messages: messages(p), MaxTokens: p.MaxTokens, User: p.Customer,
		Stream: p.Kind == prompt.Interactive,
	}
}

// messages returns the messages that the model gets.
func messages(p *prompt.Prompt) []chat.Message {
	return []chat.Message{{Role: "system", Content: "You help the staff of a shop."}, {Role: "user", Content: p.Text}}
}

// report reports what the provider says of its limits, so that the throttle's limits follow.
// It returns an error if the provider asks to wait (429, 503, 529): no worker asks the model for now,
// the charge is given back, the prompt runs again after the pause, and no retry is spent. It
// does not report how much is left: no other program uses the account, and the headers were
// written before the answer was made.
func (a *assistant) report(ctx context.Context, answer *chat.Answer) error {
	resp := &http.Response{StatusCode: answer.Status, Header: answer.Header}
	wait, refused := upstream.HTTPWait(resp)
	if !refused && answer.Status != http.StatusOK {
		return nil // it says nothing of limits
	}
	limits := upstream.HTTPLimits(resp)
	for _, scope := range []string{scopeRequests, scopeTokens} { // named as the headers name what they count
		said := throttle.Report{Refused: refused, RetryAfter: wait}
		for _, limit := range limits {
			if limit.Counts == scope {
				said.Limits = append(said.Limits, throttle.ReportedLimit{Window: a.window, Units: limit.Units, Remaining: -1})
			}
		}
		if _, err := worker.Report(ctx, scope, said); err != nil {
			a.Log.Warn("llm: the limits do not follow the provider", zap.String("scope", scope), zap.Error(err))
		}
	}
	if refused {
		return worker.AskedToWait(scopeRequests, wait, nil)
	}
	return nil
}

// refusal returns the error for an answer without a completion. A wrong request is not tried again.
func refusal(answer *chat.Answer) error {
	err := fmt.Errorf("llm: the provider answered %d: %s", answer.Status, answer.Reason)
	switch answer.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err
}

// settle corrects the charge to the usage that the provider reports. Without a usage the charge stays.
func (a *assistant) settle(ctx context.Context, p *prompt.Prompt, used *chat.Usage) {
	if used == nil {
		return
	}
	began := time.Now()
	err := worker.SettleCosts(ctx, costs(used.TotalTokens))
	if err != nil {
		a.Log.Warn("llm: a charge could not be settled", zap.String("prompt", p.ID), zap.Error(err))
	}
	a.ledger.Settled(ctx, *used, began, err)
}
