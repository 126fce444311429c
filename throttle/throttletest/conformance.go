package throttletest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Run holds a subject to the contract: timelines of calls, each with its answer.
// newSubject is called for each timeline and returns an empty throttle with these
// scopes and options. The timelines run side by side.
func Run(t *testing.T, newSubject func(t *testing.T, scopes []throttle.Scope, options throttle.Options) Subject) {
	t.Helper()
	for _, line := range timelines {
		t.Run(line.name, func(t *testing.T) {
			t.Parallel()
			options := throttle.Options{Grace: line.grace, Lookahead: line.lookahead, Shares: line.shares}
			if options.Lookahead == 0 {
				options.Lookahead = throttle.MaxWindow // a calendar without end
			}
			subject := newSubject(t, line.scopes, options)
			for i, r := range line.rows {
				if got := r.ask(subject, i); got != r.want {
					t.Errorf("step %d, %s: got %q, want %q", i+1, r, got, r.want)
				}
			}
		})
	}
}

// timeline is a story told in rows.
type timeline struct {
	name      string
	scopes    []throttle.Scope
	grace     time.Duration // 0: the default
	lookahead time.Duration // 0: as far as there is time
	shares    map[string]int
	rows      []row
}

// row is one call and what it must answer, as text:
//
//	granted 2s                     starts 2 s after the beginning; nothing held it back
//	booked 10s, tenant a 3/10s     a slot, and the limit that held the job back
//	granted 2s again               decided before: not charged twice
//	waiting, 3 ahead               in line; what is guessed of its start is not told
//	…; next a|                     and the lane to pull now, if there is one
//	too late, 10s, global 3/10s    a *throttle.DeadlineError, with the start it would have had
//	3 used, 1 booked, free 10s     usage, of each limit of the scope key
//	5                              a count
//	true, false                    cancel, release
//	booked b 10s, c 11s; next a|   pull: the jobs with their slots, or nothing
//	overdue b 10s; next a|         sweep: the same
//	a 2 jobs of 5, 1 booked, share 3    lines: units that wait and that are promised
type row struct {
	at       time.Duration // since the beginning
	call     string        // empty: reserve; peek, cancel, release, pull, sweep, lines, usage, count
	job      string        // its ID; for usage and count the scope, space, key; for pull the lane
	weight   int64         // 0: 1
	keys     string        // "tenant=a domain=x"
	wait     time.Duration // Job.MaxWait
	deadline time.Duration // since the beginning; 0: none
	nonce    string        // empty: a new one for each row
	from, to time.Duration // of count
	want     string
}

// beginning is the instant 0 of every timeline: the edge of every sub-window in
// use.
var beginning = time.UnixMicro(1_800_000_000_000_000)

func (r row) String() string {
	call := r.call
	if call == "" {
		call = "reserve"
	}
	return fmt.Sprintf("at %s %s %s", r.at, call, r.job)
}

// ask makes the call and writes its answer down.
func (r row) ask(subject Subject, step int) string {
	now := beginning.Add(r.at)
	scope, key, _ := strings.Cut(r.job, " ")
	switch r.call {
	case "peek":
		return reservationText(subject.Peek(now, r.asked(step)))
	case "cancel":
		return doneText(subject.Cancel(now, r.asked(step)))
	case "release":
		return doneText(subject.Release(now, r.asked(step)))
	case "pull":
		booked, next, err := subject.Pull(now, throttle.Lane(r.job))
		return jobsText("booked", booked, next, err)
	case "sweep":
		swept, err := subject.Sweep(now)
		return jobsText("overdue", swept.Overdue, swept.Next, err)
	case "lines":
		return linesText(subject.Lines(now, ""))
	case "usage":
		return usageText(subject.Usage(now, scope, key))
	case "count":
		units, err := subject.Count(now, scope, key, r.from, r.to)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(units)
	}
	return reservationText(subject.Reserve(now, r.asked(step)))
}

func (r row) asked(step int) throttle.Job {
	job := throttle.Job{ID: r.job, Weight: max(1, r.weight), MaxWait: r.wait, Nonce: r.nonce, Keys: make(map[string]string)}
	for pair := range strings.FieldsSeq(r.keys) {
		name, value, _ := strings.Cut(pair, "=")
		job.Keys[name] = value
	}
	if r.deadline != 0 {
		job.Deadline = beginning.Add(r.deadline)
	}
	if job.Nonce == "" {
		job.Nonce = fmt.Sprintf("step%d", step)
	}
	return job
}

func reservationText(r throttle.Reservation, err error) string {
	var late *throttle.DeadlineError
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("too late, %s%s", late.Start.Sub(beginning), holdText(late.Hold))
	case err != nil:
		return err.Error()
	case r.Replayed:
		return fmt.Sprintf("%s %s again", r.Outcome, r.Start.Sub(beginning))
	case r.Outcome == throttle.Waiting:
		return fmt.Sprintf("%s, %d ahead%s", r.Outcome, r.Ahead, nextText(r.Next))
	}
	return fmt.Sprintf("%s %s%s%s", r.Outcome, r.Start.Sub(beginning), holdText(r.Hold), nextText(r.Next))
}

func nextText(next throttle.Lane) string {
	if next == "" {
		return ""
	}
	return "; next " + string(next)
}

// jobsText says what became of which jobs.
func jobsText(what string, jobs []throttle.Reservation, next throttle.Lane, err error) string {
	if err != nil {
		return err.Error()
	}
	texts := make([]string, len(jobs))
	for i, r := range jobs {
		texts[i] = fmt.Sprintf("%s %s", r.Job.ID, r.Start.Sub(beginning))
	}
	if len(texts) == 0 {
		return "nothing" + nextText(next)
	}
	return what + " " + strings.Join(texts, ", ") + nextText(next)
}

func linesText(page throttle.LinesPage, err error) string {
	if err != nil {
		return err.Error()
	}
	texts := make([]string, len(page.Lines))
	for i, line := range page.Lines {
		texts[i] = fmt.Sprintf("%s %d jobs of %d, %d booked, share %d", line.Key, line.Jobs, line.Units, line.Booked, line.Share)
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

func holdText(hold *throttle.Hold) string {
	if hold == nil {
		return ""
	}
	return ", " + strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", hold.Scope, hold.Key, hold.Limit)), " ")
}

func doneText(done bool, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(done)
}

func usageText(usage throttle.Usage, err error) string {
	if err != nil {
		return err.Error()
	}
	texts := make([]string, len(usage.Limits))
	for i, limit := range usage.Limits {
		free := "never"
		if !limit.Free.IsZero() {
			free = limit.Free.Sub(beginning).String()
		}
		texts[i] = fmt.Sprintf("%d used, %d booked, free %s", limit.Used, limit.Booked, free)
	}
	return strings.Join(texts, "; ")
}
