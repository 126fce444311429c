package worker

import (
	"context"
	"testing"
)

// TestCountsOfAnotherKindAreLeft asks for counts in contexts that differ from those of today's asynq:
// withCounts gives up, and does not guess.
func TestCountsOfAnotherKindAreLeft(t *testing.T) {
	t.Parallel()
	key := asynqsKey()
	if key == nil {
		t.Fatal("asynq asks a context for nothing")
	}
	for name, kept := range map[string]any{
		"nothing": nil, "no struct": 7, "a pointer": &struct{ maxRetry, retryCount int }{},
		"other fields": struct{ most int }{9},
		"other types":  struct{ maxRetry, retryCount int64 }{}, "another struct": struct{ maxRetry, retryCount int }{},
	} {
		if _, err := withCounts(context.WithValue(t.Context(), key, kept), 1, 2); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
