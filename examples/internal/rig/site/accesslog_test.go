package site

import (
	"testing"
	"time"
)

func TestPauseViolations(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	asked := Access{Host: "a", At: at(90), End: at(100), Until: at(1100)}
	for _, row := range []struct {
		name string
		also Access
		want int
	}{
		{"before", Access{Host: "a", At: at(10)}, 0},
		{"under way when it was answered", Access{Host: "a", At: at(95)}, 0},
		{"during", Access{Host: "a", At: at(101)}, 1},
		{"at the last moment", Access{Host: "a", At: at(1099)}, 1},
		{"at its end", Access{Host: "a", At: at(1100)}, 0},
		{"another host", Access{Host: "b", At: at(500)}, 0},
	} {
		violations, pauses := PauseViolations([]Access{asked, row.also})
		if violations != row.want || pauses != 1 {
			t.Errorf("%s: %d violations of %d pauses, want %d of 1", row.name, violations, pauses, row.want)
		}
	}
}

// The rules that the bundled hosts declare are compared with the requests that they got.
func TestRobotsViolations(t *testing.T) {
	t.Parallel()
	w := &Web{sites: []Site{{Host: "a", forbidden: under("/private/")}, {Host: "b"}}}
	rules := Access{Host: "a", URL: "http://a/robots.txt", Rules: true}
	for _, row := range []struct {
		name     string
		accesses []Access
		want     int
	}{
		{"kept to", []Access{rules, {Host: "a", URL: "http://a/p/1"}}, 0},
		{"not kept to", []Access{rules, {Host: "a", URL: "http://a/private/x"}}, 1},
		{"never asked", []Access{{Host: "a", URL: "http://a/p/1"}}, 1},
		{"asked another", []Access{rules, {Host: "b", URL: "http://b/"}}, 1},
		{"asked too late", []Access{{Host: "a", URL: "http://a/p/1"}, rules}, 1},
	} {
		if got := w.RobotsViolations(row.accesses, map[string]bool{}); got != row.want {
			t.Errorf("%s: got %d, want %d", row.name, got, row.want)
		}
	}
	if got := w.RobotsViolations([]Access{{Host: "a", URL: "http://a/p/1"}}, map[string]bool{"a": true}); got != 0 {
		t.Errorf("asked by another process: got %d, want 0", got)
	}
}
