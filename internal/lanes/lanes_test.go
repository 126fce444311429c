package lanes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/lanes"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// TestTooManyFlows: a line with more flows than lanes are read is given up before its flows are read.
func TestTooManyFlows(t *testing.T) {
	t.Parallel()
	var asked []string
	script := lanes.Script{Run: func(_ context.Context, of wire.Lines) (any, error) {
		asked = append(asked, of.Kind)
		reply := []any{"1795219498000000", ""}
		if of.Kind == wire.LinesKeys {
			reply = append(reply, "global", "1795219499000000", "10001", "0", "tenant:a", "1795219499000000", "10000", "0")
		}
		return reply, nil
	}, Unreadable: errors.New("unreadable")}
	if _, err := lanes.Read(t.Context(), script); !errors.Is(err, lanes.ErrTooMany) || len(asked) != 2 {
		t.Errorf("%v after asking for %q, want ErrTooMany without the flows", err, asked)
	}
}
