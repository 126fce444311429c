package rig

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Snapshot is the progress of a run at a moment.
type Snapshot struct {
	Elapsed time.Duration
	All     int64  // known jobs
	Ended   int64  // known jobs that have ended
	What    string // what the jobs are, such as "mails"
	Pace    string // the pace in words
}

// String returns a line about it.
func (s Snapshot) String() string {
	return fmt.Sprintf("%3d of %3d %s done, %s", s.Ended, s.All, s.What, s.Pace)
}

// Progress shows snapshots and messages to a person. It is safe for concurrent use.
type Progress interface {
	Show(s Snapshot)
	Say(format string, args ...any)
	Finish()
}

// lineEvery is how often a line is written without a terminal. In a long run it is written when
// the run has lasted for a fiftieth longer than at the line before.
const (
	lineEvery = 2 * time.Second
	lineParts = 50
)

// ShowProgress begins to show progress on standard error: a bar on a terminal, and plain
// lines elsewhere.
func (p *Program) ShowProgress() { p.Progress = newProgress(p.Stderr, p.terminal) }

func newProgress(w io.Writer, terminal bool) Progress {
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
	return &barProgress{w: w, bar: progressbar.NewOptions(1,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(),
		progressbar.OptionShowDescriptionAtLineEnd())}
}

type barProgress struct {
	w   io.Writer
	bar *progressbar.ProgressBar
}

// Show draws the bar anew.
func (p *barProgress) Show(s Snapshot) {
	p.bar.Describe(fmt.Sprintf("%2.0f s, %s", s.Elapsed.Seconds(), s.Pace))
	p.bar.ChangeMax64(max(1, s.All)) // more may be found on the way
	_ = p.bar.Set64(s.Ended)         // fails only above the maximum
}

// Say writes above the bar, which the next snapshot draws again.
func (p *barProgress) Say(format string, args ...any) {
	_ = p.bar.Clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Finish clears the bar: the report follows.
func (p *barProgress) Finish() { _ = p.bar.Clear() }

type lineProgress struct {
	w    io.Writer
	next time.Duration
}

// Show writes a line now and then.
func (p *lineProgress) Show(s Snapshot) {
	if s.Elapsed < p.next {
		return
	}
	p.next = s.Elapsed.Truncate(lineEvery) + max(lineEvery, s.Elapsed/lineParts)
	fmt.Fprintf(p.w, "%3.0f s  %s\n", s.Elapsed.Seconds(), s)
}

// Say writes a line.
func (p *lineProgress) Say(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

// Finish does nothing: the report follows.
func (p *lineProgress) Finish() {}
