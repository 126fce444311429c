package rig

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestLineProgressWritesALineNowAndThen(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	p := newProgress(&text, isTerminal(&text))
	for ms := 0; ms <= 5000; ms += 250 {
		p.Show(Snapshot{Elapsed: time.Duration(ms) * time.Millisecond, All: 10, Ended: int64(ms / 1000),
			What: "mails", Pace: "put back 3 times, 40 units in the last second"})
	}
	p.Finish()
	want := "  0 s    0 of  10 mails done, put back 3 times, 40 units in the last second\n" +
		"  2 s    2 of  10 mails done, put back 3 times, 40 units in the last second\n" +
		"  4 s    4 of  10 mails done, put back 3 times, 40 units in the last second\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

// A run of days is not shown every other second.
func TestLineProgressOfDays(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	p := newProgress(&text, false)
	for elapsed := time.Duration(0); elapsed < 72*time.Hour; elapsed += time.Second {
		p.Show(Snapshot{Elapsed: elapsed, All: 10, What: "mails"})
	}
	if lines := strings.Count(text.String(), "\n"); lines < 100 || lines > 500 {
		t.Errorf("%d lines", lines)
	}
}

func TestBarProgress(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	p := newBarProgress(&text)
	p.Show(Snapshot{Elapsed: time.Second, All: 10, Ended: 5, What: "mails",
		Pace: "put back 3 times, 40 units in the last second"})
	p.Finish()
	if !strings.Contains(text.String(), "50%") || !strings.Contains(text.String(), "put back 3 times") {
		t.Errorf("got %q", text.String())
	}
}
