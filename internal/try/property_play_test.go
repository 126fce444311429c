package try_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/try"
)

// TestPropertyPlay: whatever is entered, no window of this library's side is over its limit, and each job starts unless
// a note says why not. Or the error names a field.
func TestPropertyPlay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		r, err := try.Play(in)
		var wrong *try.FieldError
		switch {
		case err != nil && (!errors.As(err, &wrong) || wrong.Field == ""):
			t.Fatalf("%+v: %v, want an error that names a field", in, err)
		case err != nil:
			return
		case r.Shaped.Over != 0 || r.Shaped.Fullest > 1:
			t.Fatalf("%+v: %d windows are over their limit, the fullest has %.3f of it", in, r.Shaped.Over, r.Shaped.Fullest)
		case min(r.Shaped.Started, r.Recipe.Started) < r.Jobs && len(r.Notes) == 0:
			t.Fatalf("%+v: %d of %d jobs started, and there is no note", in, r.Shaped.Started, r.Jobs)
		}
	})
}

// drawInput draws small backlogs, with some texts that are wrong.
func drawInput(t *rapid.T) try.Input {
	limits := []string{
		"", "5/1s", "20/1m, 30/1h", "7/1s@10ms", "200/1m", "2/running", "3/running@3s", "9/day@Europe/Paris",
		"open Mon-Fri 09:00-09:01 @UTC", "ramp 5 10/day from 2026-12-01 @UTC", "unlimited/1m", "0/1m", "x"}
	text := func(name string, texts ...string) string { return rapid.SampledFrom(texts).Draw(t, name) }
	return try.Input{
		Global: text("global", limits...), Tenant: text("tenant", limits...),
		Scope: text("scope", "", "domain", "domain"), Limits: text("limits", limits...), Keys: text("keys", "", "3"),
		Tenants: text("tenants", "1", "2", "5"), Shares: text("shares", "", "3, 1"), Jobs: text("jobs", "1", "20", "30, 4"),
		Weight: text("weight", "", "1, 3", "5, 1", "-1"), PerSecond: text("per second", "", "0.3", "10, 0"),
		Runs:   text("runs", "", "300ms", "7s"),
		Begins: text("begins", "", "2026-12-01T22:59", "2027-03-28T00:59:59"),
		Paused: text("paused", "", "tenant"), From: text("from", "", "3s"), Until: text("until", "", "3s", "20s", "1d"),
	}
}
