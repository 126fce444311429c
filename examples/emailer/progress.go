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
	mails      int   // in the campaign
	ended      int   // delivered, refused or given up
	putBacks   int64 // so far
	lastSecond int64 // units started in it
}

func (s snapshot) String() string {
	return fmt.Sprintf("%3d of %d mails done, put back %d times, %d units in the last second", s.ended, s.mails, s.putBacks, s.lastSecond)
}

// progress shows snapshots to a person.
type progress interface {
	show(snapshot)
	finish()
}

// lineEvery is how often progress without a terminal writes a line.
const lineEvery = 2 * time.Second

// newProgress returns a bar for a terminal, else plain lines.
func newProgress(w io.Writer, terminal bool, mails int) progress {
	if terminal {
		return newBarProgress(w, mails)
	}
	return &lineProgress{w: w}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func newBarProgress(w io.Writer, mails int) *barProgress {
	return &barProgress{bar: progressbar.NewOptions(mails,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionShowDescriptionAtLineEnd())}
}

type barProgress struct{ bar *progressbar.ProgressBar }

func (p *barProgress) show(s snapshot) {
	p.bar.Describe(fmt.Sprintf("%2.0f s, put back %d times, %d units in the last second", s.elapsed.Seconds(), s.putBacks, s.lastSecond))
	_ = p.bar.Set(s.ended) // fails only above the maximum
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
