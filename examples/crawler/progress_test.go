package main

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
	for ms := int64(0); ms <= 5000; ms += 250 {
		p.show(snapshot{elapsed: time.Duration(ms) * time.Millisecond, pages: 10, ended: ms / 1000, putBacks: 3, lastSecond: 40})
	}
	p.finish()
	want := "  0 s    0 of  10 pages done, put back 3 times, 40 KB in the last second\n" +
		"  2 s    2 of  10 pages done, put back 3 times, 40 KB in the last second\n" +
		"  4 s    4 of  10 pages done, put back 3 times, 40 KB in the last second\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

func TestBarProgress(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	p := newBarProgress(&text)
	p.show(snapshot{elapsed: time.Second, pages: 10, ended: 5, putBacks: 3, lastSecond: 40})
	p.finish()
	if !strings.Contains(text.String(), "50%") || !strings.Contains(text.String(), "put back 3 times") {
		t.Errorf("got %q", text.String())
	}
}
