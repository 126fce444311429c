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
	mails      int           // in the campaign
	ended      int           // delivered, refused or given up
	putBacks   int64         // so far
	lastSecond int64         // units started in it
	last       time.Duration // when the last mail is expected to start; 0 = that is not known
}

func (s snapshot) String() string {
	return fmt.Sprintf("%3d of %d mails done, %s", s.ended, s.mails, s.pace())
}

func (s snapshot) pace() string {
	text := fmt.Sprintf("put back %d times, %d units in the last second", s.putBacks, s.lastSecond)
	if s.last > 0 {
		text += fmt.Sprintf(", the last start expected at +%.1f s", s.last.Seconds())
	}
	return text
}

// progress shows snapshots to a person, and says what happens. It is safe for
// concurrent use.
type progress interface {
	show(snapshot)
	say(format string, args ...any)
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
	return &barProgress{w: w, bar: progressbar.NewOptions(mails,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionShowDescriptionAtLineEnd())}
}

type barProgress struct {
	w   io.Writer
	bar *progressbar.ProgressBar
}

func (p *barProgress) show(s snapshot) {
	p.bar.Describe(fmt.Sprintf("%2.0f s, %s", s.elapsed.Seconds(), s.pace()))
	_ = p.bar.Set(s.ended) // fails only above the maximum
}

// say writes above the bar, which the next snapshot draws again.
func (p *barProgress) say(format string, args ...any) {
	_ = p.bar.Clear()
	fmt.Fprintf(p.w, format+"\n", args...)
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

func (p *lineProgress) say(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p *lineProgress) finish() {}
