package account

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hibiken/asynq"
)

// TestJobsEndOnce: only the first end of a job counts, and the account is done with the last job's.
func TestJobsEndOnce(t *testing.T) {
	t.Parallel()
	j := NewJobs(map[string]string{"a": "", "b": ""})
	for _, step := range []struct {
		id, how string
		left    int
		done    bool
	}{{"a", "well", 1, false}, {"a", "badly", 1, false}, {"unknown", "well", 1, false}, {"b", "well", 0, true},
		{"b", "badly", 0, true}} {
		j.End(step.id, func(how *string) { *how = step.how })
		done := false
		select {
		case <-j.Done():
			done = true
		default:
		}
		if j.Left() != step.left || done != step.done {
			t.Errorf("%s ends %s: %d left, done %t; want %d, %t", step.id, step.how, j.Left(), done, step.left, step.done)
		}
	}
	j.Note("unknown", func(how *string) { *how = "noted" })
	if all := j.All(); len(all) != 2 || all["a"] != "well" || all["b"] != "well" {
		t.Errorf("got %v, want that both ended well", all)
	}
}

func TestPlainReason(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("%w: %w", errors.New("no such model"), asynq.SkipRetry)
	if got := PlainReason(err.Error()); got != "no such model" {
		t.Errorf("got %q", got)
	}
}
