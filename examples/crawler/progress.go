package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// snapshot is how far a run is.
type snapshot struct {
	elapsed    time.Duration
	pages      int64 // found so far
	ended      int64 // of these
	putBacks   int64 // so far
	lastSecond int64 // kilobytes that came in it
}

func (s snapshot) String() string {
	return fmt.Sprintf("%3d of %3d pages done, put back %d times, %d KB in the last second", s.ended, s.pages, s.putBacks, s.lastSecond)
}

// progress shows snapshots to a person.
type progress interface {
	show(snapshot)
	finish()
}

// lineEvery is how often progress without a terminal writes a line.
const lineEvery = 2 * time.Second

// newProgress returns a bar for a terminal, else plain lines.
func newProgress(w io.Writer, terminal bool) progress {
	if terminal {
		return newBarProgress(w)
	}
	return &lineProgress{w: w}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func newBarProgress(w io.Writer) *barProgress {
	return &barProgress{bar: progressbar.NewOptions(1,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionShowDescriptionAtLineEnd())}
}

type barProgress struct{ bar *progressbar.ProgressBar }

func (p *barProgress) show(s snapshot) {
	p.bar.Describe(fmt.Sprintf("%2.0f s, put back %d times, %d KB in the last second", s.elapsed.Seconds(), s.putBacks, s.lastSecond))
	p.bar.ChangeMax64(max(1, s.pages)) // more are found on the way
	_ = p.bar.Set64(s.ended)           // fails only above the maximum
}

// finish clears the bar: the report follows.
func (p *barProgress) finish() { _ = p.bar.Clear() }

type lineProgress struct {
	w    io.Writer
	next time.Duration
}

func (p *lineProgress) show(s snapshot) {
	if s.elapsed < p.next {
		return
	}
	p.next = s.elapsed.Truncate(lineEvery) + lineEvery
	fmt.Fprintf(p.w, "%3.0f s  %s\n", s.elapsed.Seconds(), s)
}

func (p *lineProgress) finish() {}
