package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/seam"
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

// TestExplanationInShadow: no limit in shadow has a time at which it has room: it delays nothing.
func TestExplanationInShadow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	e := Explanation{Job: "a", Now: now, Usage: []Usage{{Scope: throttle.Global, Mode: throttle.Shadow, Served: 1,
		Paused: now.Add(time.Hour), Limits: []LimitUsage{{Limit: throttle.PerHour(2), Used: 2, Free: now.Add(time.Minute)}}}}}
	text := e.String()
	for _, want := range []string{" booked  nothing is delayed, shadow\n", "(in 1h), shadow\n"} {
		if !strings.Contains(text, want) || strings.Contains(text, "room") {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
}

// TestGuessUnderALimitThatEnds: a limit of 0 that ends by itself keeps a job back until then, and one without an end
// for ever.
func TestGuessUnderALimitThatEnds(t *testing.T) {
	t.Parallel()
	th, err := throttle.New("guess", redis.NewClient(&redis.Options{}), []throttle.Scope{{Name: throttle.Global}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	closed := Usage{Scope: throttle.Global, Served: 1, Limits: []LimitUsage{{Limit: throttle.PerMinute(0)}}}
	o := &order{Order: seam.Order{Charges: []seam.Charge{{Scope: throttle.Global, Units: 1}}}}
	for _, end := range []time.Time{{}, now.Add(time.Hour)} {
		closed.Ends = end
		e := Explanation{Now: now, Waiting: 9000, Before: 3, Usage: []Usage{closed}}
		New(th).guess(o, &e)
		if !e.Expected.Equal(end) {
			t.Errorf("the limit ends at %s, and the job is expected at %s", end, e.Expected)
		}
	}
}
