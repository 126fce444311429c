package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestExplanationOfWhatIsNotKnown: a start that is not known is not called one that never comes.
func TestExplanationOfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	e := Explanation{Job: "a", Now: time.Now(), Waiting: 7, Before: 3}
	if text := e.String(); !strings.Contains(text, "expected to start at a time that is not known") {
		t.Error(text)
	}
	e.Usage = []Usage{{Scope: throttle.Global, Limits: []LimitUsage{{Limit: throttle.PerMinute(0)}}}}
	if text := e.String(); !strings.Contains(text, "expected to start never, unless limits change") {
		t.Error(text)
	}
}
