package main

import (
	"testing"
	"time"
)

func TestPauseViolations(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	asked := access{host: "a", at: at(90), end: at(100), until: at(1100)}
	for _, row := range []struct {
		name string
		also access
		want int
	}{
		{"before", access{host: "a", at: at(10)}, 0},
		{"under way when it was answered", access{host: "a", at: at(95)}, 0},
		{"during", access{host: "a", at: at(101)}, 1},
		{"at the last moment", access{host: "a", at: at(1099)}, 1},
		{"at its end", access{host: "a", at: at(1100)}, 0},
		{"another host", access{host: "b", at: at(500)}, 0},
	} {
		violations, pauses := pauseViolations([]access{asked, row.also})
		if violations != row.want || pauses != 1 {
			t.Errorf("%s: %d violations of %d pauses, want %d of 1", row.name, violations, pauses, row.want)
		}
	}
}

// What the bundled hosts say they forbid is checked against what they were asked.
func TestRobotsViolations(t *testing.T) {
	t.Parallel()
	w := &web{sites: []site{{host: "a", forbidden: under("/private/")}, {host: "b"}}}
	rules := access{host: "a", url: "http://a/robots.txt", rules: true}
	for _, row := range []struct {
		name     string
		accesses []access
		want     int
	}{
		{"kept to", []access{rules, {host: "a", url: "http://a/p/1"}}, 0},
		{"not kept to", []access{rules, {host: "a", url: "http://a/private/x"}}, 1},
		{"never asked", []access{{host: "a", url: "http://a/p/1"}}, 1},
		{"asked another", []access{rules, {host: "b", url: "http://b/"}}, 1},
		{"asked too late", []access{{host: "a", url: "http://a/p/1"}, rules}, 1},
	} {
		if got := w.robotsViolations(row.accesses, map[string]bool{}); got != row.want {
			t.Errorf("%s: got %d, want %d", row.name, got, row.want)
		}
	}
	if got := w.robotsViolations([]access{{host: "a", url: "http://a/p/1"}}, map[string]bool{"a": true}); got != 0 {
		t.Errorf("asked by another process: got %d, want 0", got)
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	visited := []visit{{url: "a", start: at(0)}, {url: "a", start: at(100)}, {url: "b", start: at(50)}}
	accesses := []access{{url: "a", at: at(10)}, {url: "b", at: at(53)}, {url: "a", at: at(120)}, {url: "unknown", at: at(900)}}
	if longest, shortest := delays(visited, accesses); longest != 20*time.Millisecond || shortest != 3*time.Millisecond {
		t.Errorf("got %s and %s, want 20ms and 3ms", longest, shortest)
	}
	if longest, shortest := delays(visited, nil); longest != 0 || shortest != 0 {
		t.Errorf("without accesses: got %s and %s", longest, shortest)
	}
	if _, shortest := delays(visited, []access{{url: "a", at: at(-5)}}); shortest != -5*time.Millisecond {
		t.Errorf("before its grant: got %s, want -5ms", shortest)
	}
}
