package throttle

import (
	"encoding/json"
	"testing"
)

// TestSharesAreCopied: the throttle copies the map of shares, so its caller may change the map afterwards.
func TestSharesAreCopied(t *testing.T) {
	t.Parallel()
	shares := map[string]int{"acme": 2}
	th, err := New("t", newFake(), []Scope{{Name: "tenant", Limits: []Limit{PerMinute(1)}}}, &Options{Shares: shares})
	if err != nil {
		t.Fatal(err)
	}
	shares["acme"], shares["globex"] = 5, 6
	if p := th.self(); len(p.Shares) != 1 || p.Shares["acme"] != 2 {
		t.Errorf("got %v", p.Shares)
	}
}

// TestSharesThatAreNoText: two processes with the same shares do not differ, even if JSON cannot express the keys.
func TestSharesThatAreNoText(t *testing.T) {
	t.Parallel()
	th, err := New("t", newFake(), []Scope{{Name: "tenant", Limits: []Limit{PerMinute(1)}}},
		&Options{Shares: map[string]int{"M\xfcller": 2}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(th.self())
	if err != nil {
		t.Fatal(err)
	}
	var published Process
	if err := json.Unmarshal(text, &published); err != nil {
		t.Fatal(err)
	}
	if differences := th.self().Differences(published); len(differences) > 0 {
		t.Errorf("got %q", differences)
	}
}
