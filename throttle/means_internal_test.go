package throttle

import (
	"testing"
	"time"
)

// TestRunsWithCooldown: a place is occupied for as long as jobs run and for the cool-down, whether
// the time that they run is configured or measured.
func TestRunsWithCooldown(t *testing.T) {
	t.Parallel()
	th, err := New("t", newFake(), []Scope{{Name: "host", Limits: []Limit{Running(1)}, Cooldown: 20 * time.Second}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, known := th.runs("host"); known {
		t.Error("it is known before a job has run")
	}
	start := time.Now()
	th.means.ended([]Reservation{{Job: Job{Keys: map[string]string{"host": "h"}}, Start: start}}, start.Add(time.Second))
	if runs, known := th.runs("host"); !known || runs != 21*time.Second {
		t.Errorf("got %s, %t", runs, known)
	}
	th.scopes[0].Runs = 3 * time.Second
	if runs, known := th.runs("host"); !known || runs != 23*time.Second {
		t.Errorf("got %s, %t", runs, known)
	}
}
