package main

import (
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
)

// example returns an assistant that has its options and nothing else.
func example(t *testing.T, args ...string) *assistant {
	t.Helper()
	p := rig.New("llm", io.Discard, io.Discard)
	o, err := parseOptions(p, args)
	if err != nil {
		t.Fatal(err)
	}
	return &assistant{options: o, Program: p}
}

func TestJobOf(t *testing.T) {
	t.Parallel()
	a := example(t, "-model", "m")
	arrived := time.UnixMicro(1_000_000)
	for kind, deadline := range map[prompt.Kind]time.Time{prompt.Interactive: arrived.Add(patience), prompt.Batch: {}} {
		p := &prompt.Prompt{ID: "p", Kind: kind, Customer: "acme", Text: strings.Repeat("x", 400), MaxTokens: 50}
		job, err := a.jobOf(t.Context(), a.task(p, arrived))
		if err != nil {
			t.Fatal(err)
		}
		tokens := estimate(p)
		if tokens < 100+50 || tokens > 100+50+20 { // the other messages are short
			t.Errorf("%d tokens for a text of 100 that may have 50 for its answer", tokens)
		}
		keys := map[string]string{scopeRequests: "m", scopeTokens: "m", scopeBudget: "acme"}
		if job.Weight != 1 || !maps.Equal(job.Costs, map[string]int64{scopeTokens: tokens, scopeBudget: tokens}) ||
			!maps.Equal(job.Keys, keys) || job.Priority != map[prompt.Kind]int{prompt.Batch: 1}[kind] ||
			!job.Deadline.Equal(deadline) {
			t.Errorf("%s: got %+v", kind, job)
		}
	}
	for reason, task := range map[string]*asynq.Task{
		"is no kind":        asynq.NewTask(taskType, []byte("{}")),
		"is not an integer": asynq.NewTask(taskType, (&prompt.Prompt{Kind: prompt.Interactive}).Payload()),
	} {
		if _, err := a.jobOf(t.Context(), task); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
}

// The throttle's limits are the provider's, with a margin.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ args, want string }{
		{"", "requests 60/4s 20/1s tokens 30000/4s 10000/1s budget 45000/24h"},
		{"-base-url=https://api.example/v1 -requests=2", "requests 2/1m 1/15s tokens 30000/1m 10000/15s budget 45000/24h"},
		{"-window=500ms", "requests 60/500ms 20/125ms tokens 30000/500ms 10000/125ms budget 45000/24h"},
	} {
		a := example(t, strings.Fields(row.args)...)
		var words []string
		for _, scope := range a.scopes() {
			words = append(words, scope.Name)
			for _, limit := range scope.Limits {
				words = append(words, limit.String())
			}
		}
		if got := strings.Join(words, " "); got != row.want {
			t.Errorf("%q: got %s, want %s", row.args, got, row.want)
		}
	}
}
