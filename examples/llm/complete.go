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
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// complete is the handler of a task: it runs at the start that was granted, asks the
// provider, and keeps the answer as the task's result.
func (a *assistant) complete(ctx context.Context, task *asynq.Task) error {
	p, err := prompt.Read(task.Payload())
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	sent := time.Now()
	answer, err := a.provider.Complete(ctx, p.ID, a.request(p))
	switch {
	case chat.NeverConnected(err):
		return worker.Untouched(err)
	case err != nil: // nobody knows what it took: the charge stays, and asynq tries again
		return err
	}
	if wait := report(answer); wait != nil {
		return wait
	}
	if answer.Status != http.StatusOK {
		return refusal(answer)
	}
	a.settle(ctx, p, sent, answer.Usage)
	_, err = task.ResultWriter().Write([]byte(answer.Text))
	return err
}

// request is what the provider is asked. The answer to a person is streamed.
func (a *assistant) request(p *prompt.Prompt) chat.Request {
	return chat.Request{
		Model: a.model, Messages: messages(p), MaxTokens: p.MaxTokens, User: p.Customer,
		Stream: p.Kind == prompt.Interactive,
	}
}

// messages are what is said to the model.
func messages(p *prompt.Prompt) []chat.Message {
	return []chat.Message{{Role: "system", Content: "You help the staff of a shop."}, {Role: "user", Content: p.Text}}
}

// report passes on what the provider says of its limits. If it has none left (429, 503),
// that is an error: nothing more is asked of the model for now, by any worker. The charge is
// given back, the prompt comes again after the pause, and no retry is spent.
func report(answer *chat.Answer) error {
	return worker.HTTPWait(scopeRequests, &http.Response{StatusCode: answer.Status, Header: answer.Header}, time.Now())
}

// refusal is the error of an answer that is none. What is wrong with the request itself
// will not be right the next time.
func refusal(answer *chat.Answer) error {
	err := fmt.Errorf("llm: the provider answered %d: %s", answer.Status, answer.Reason)
	switch answer.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err
}

// settle corrects the charge to what the provider says that it took. Without that it stays.
func (a *assistant) settle(ctx context.Context, p *prompt.Prompt, sent time.Time, used *chat.Usage) {
	if used == nil {
		return
	}
	if err := worker.SettleCosts(ctx, costs(used.TotalTokens)); err != nil {
		a.Log.Warn("llm: a charge could not be settled", zap.String("prompt", p.ID), zap.Error(err))
		return
	}
	a.ledger.Settled(ctx, sent, *used)
}
