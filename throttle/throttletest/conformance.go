package throttletest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Run tests a subject against the contract: timelines of calls, each with its answer.
// It calls newSubject for each timeline; newSubject returns an empty throttle with these
// scopes and options. The timelines run in parallel.
func Run(t *testing.T, newSubject func(t *testing.T, scopes []throttle.Scope, options throttle.Options) Subject) {
	t.Helper()
	for _, line := range slices.Concat(timelines, lineTimelines, settleTimelines, runningTimelines, pauseTimelines,
		limitTimelines, windowTimelines, modeTimelines, clockTimelines, quotaTimelines, hoursTimelines, rampTimelines,
		boundTimelines) {
		t.Run(line.name, func(t *testing.T) {
			t.Parallel()
			options := throttle.Options{Grace: line.grace, Lookahead: line.lookahead, Shares: line.shares,
				SettleWithin: line.within, Mode: line.mode}
			if options.Lookahead == 0 {
				options.Lookahead = farthest
			}
			played := &playing{Subject: newSubject(t, line.scopes, options), grants: make(map[string]throttle.Reservation)}
			for i, r := range line.rows {
				if got := r.ask(played, i); got != r.want {
					t.Errorf("step %d, %s: got %q, want %q", i+1, r, got, r.want)
				}
			}
		})
	}
}

// farthest is a lookahead within which all jobs are booked, so that none waits in line.
const farthest = 400 * 24 * time.Hour

// timeline is a story told in rows.
type timeline struct {
	name      string
	scopes    []throttle.Scope
	grace     time.Duration // 0: the default
	lookahead time.Duration // 0: as far as there is time
	within    time.Duration // Options.SettleWithin
	mode      throttle.Mode // Options.Mode
	shares    map[string]int
	rows      []row
}

// playing is the subject of a timeline and the grants it has made: by job and nonce, and
// the last by job.
type playing struct {
	Subject
	grants map[string]throttle.Reservation
}

// reserve keeps the grants.
func (s *playing) reserve(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	r, err := s.Reserve(now, job)
	if err == nil && r.Outcome == throttle.Granted {
		s.grants[job.ID], s.grants[job.ID+" "+job.Nonce] = r, r
	}
	return r, err
}

// grant returns the grant of a row's job and nonce, or the last grant of the job.
func (s *playing) grant(r row) throttle.Reservation {
	if r.nonce != "" {
		return s.grants[r.job+" "+r.nonce]
	}
	return s.grants[r.job]
}

// row is one call and what it must answer, as text:
//
//	granted 2s                     starts 2 s after the beginning; nothing held it
//	booked 10s, tenant a 3/10s     a slot, and the limit that held the job
//	waiting, 3 ahead               in line; the guess of its start is left out
//	full, tenant a: 1 job, 3 units   a *throttle.LineFullError, with the length of the line
//	too late, 10s, global 3/10s    a *throttle.DeadlineError, with the start it would have had
//	3 used, 1 booked, free 10s     usage, of each limit of the scope key
//	5                              a count
//	true, false                    cancel, release, settle, refund; leave: for each job
//	booked b 10s, c 11s; overdue a 9s    pull: the jobs with their slots, or nothing
//	tenant a 2                     lines: the scope keys under which flows wait, and how many
//	granted 0s; shadow tenant a 3/10s until 10s    the shadow limit that would have held it
//	booked 10s, tenant a paused    a pause that held the job
//	until 10s                      pause: when it ends
//	done                           limits, reset, mode
//	3/10s of the key, shadow, paused until 10s     inforce: limits, whose they are, the mode
type row struct {
	at time.Duration // since the beginning
	// empty: reserve; peek, cancel, leave, release, pull, lines, usage, count, settle, refund, done, renew, pause,
	// resume, limits, reset, mode, inforce
	call     string
	job      string        // its ID; in calls about a scope key the scope, space, key; of leave the IDs
	weight   int64         // 0: 1
	costs    string        // "tenant=2 global=0"; of settle the actual costs
	keys     string        // "tenant=a domain=x"
	wait     time.Duration // Job.MaxWait
	deadline time.Duration // since the beginning; 0: none
	nonce    string        // empty: a new one for each row; of settle and release whose grant
	from, to time.Duration // of count
	plan     bool          // Job.Plan
	bounded  bool          // Job.Bounded
	actual   int64         // of settle
	until    time.Duration // of pause, limits and mode, since the beginning
	text     string        // of limits what they are, of mode which; no mode is reset
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
func (r row) ask(subject *playing, step int) string {
	now := beginning.Add(r.at)
	scope, key, _ := strings.Cut(r.job, " ")
	switch r.call {
	case "peek":
		return reservationText(subject.Peek(now, r.asked(step)))
	case "cancel":
		return doneText(subject.Cancel(now, r.asked(step)))
	case "release":
		return doneText(subject.Release(now, subject.grant(r)))
	case "leave":
		left, err := subject.Leave(now, strings.Fields(r.job))
		return strings.Trim(doneText(left, err), "[]")
	case "pull":
		return pulledText(subject.Pull(now))
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
	case "settle":
		if r.costs != "" {
			return doneText(subject.SettleCosts(now, subject.grant(r), unitsOf(r.costs)))
		}
		return doneText(subject.Settle(now, subject.grant(r), r.actual))
	case "refund":
		return doneText(subject.Refund(now, subject.grant(r)))
	case "done":
		done, err := subject.Done(now, subject.grant(r))
		return strings.Trim(doneText(done, err), "[]")
	case "renew":
		renewed, err := subject.Renew(now, subject.grant(r))
		return strings.Trim(doneText(renewed, err), "[]")
	case "":
		return reservationText(subject.reserve(now, r.asked(step)))
	}
	return r.control(subject, now, scope, key)
}

// lasts returns until when a row sets limits or a mode; the zero time: until they are reset.
func (r row) lasts() time.Time {
	if r.until == 0 {
		return time.Time{}
	}
	return beginning.Add(r.until)
}

// control makes a call that sets something at run time, or reads it.
func (r row) control(subject Subject, now time.Time, scope, key string) string {
	switch r.call {
	case "pause":
		until, err := subject.Pause(now, scope, key, beginning.Add(r.until))
		if err != nil {
			return err.Error()
		}
		return "until " + until.Sub(beginning).String()
	case "resume":
		return doneText(subject.Resume(now, scope, key))
	case "limits":
		limits, err := throttle.ParseLimits(r.text)
		if err != nil {
			return err.Error()
		}
		return setText(subject.SetLimits(now, scope, key, limits, r.lasts()))
	case "reset":
		return setText(subject.ResetLimits(now, scope, key))
	case "mode":
		if r.text == "" {
			return setText(subject.ResetMode(now, scope))
		}
		return setText(subject.SetMode(now, scope, modes[r.text], r.lasts()))
	case "inforce":
		return inForceText(subject.Usage(now, scope, key))
	}
	return "no call " + r.call
}

// modes by their names.
var modes = map[string]throttle.Mode{"enforce": throttle.Enforce, "shadow": throttle.Shadow, "off": throttle.Off}

func (r row) asked(step int) throttle.Job {
	job := throttle.Job{ID: r.job, Weight: max(1, r.weight), MaxWait: r.wait, Nonce: r.nonce, Plan: r.plan,
		Bounded: r.bounded,
		Keys:    make(map[string]string)}
	for pair := range strings.FieldsSeq(r.keys) {
		name, value, _ := strings.Cut(pair, "=")
		job.Keys[name] = value
	}
	if r.costs != "" {
		job.Costs = unitsOf(r.costs)
	}
	if r.deadline != 0 {
		job.Deadline = beginning.Add(r.deadline)
	}
	if job.Nonce == "" {
		job.Nonce = fmt.Sprintf("step%d", step)
	}
	return job
}

// unitsOf reads "tenant=2 global=0".
func unitsOf(text string) map[string]int64 {
	units := make(map[string]int64)
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			panic(err)
		}
		units[name] = n
	}
	return units
}

func reservationText(r throttle.Reservation, err error) string {
	var late *throttle.DeadlineError
	var full *throttle.LineFullError
	switch {
	case errors.As(err, &full):
		return fmt.Sprintf("full, %s %s: %s", full.Scope, full.Key, full.Waiting)
	case errors.As(err, &late):
		return fmt.Sprintf("too late, %s%s", late.Start.Sub(beginning), holdText(late.Hold))
	case err != nil:
		return err.Error()
	case r.Outcome == throttle.Waiting:
		return fmt.Sprintf("%s, %d ahead", r.Outcome, r.Ahead)
	}
	lease := ""
	if r.Lease > 0 {
		lease = " for " + r.Lease.String()
	}
	return fmt.Sprintf("%s %s%s%s%s", r.Outcome, r.Start.Sub(beginning), lease, holdText(r.Hold), shadowText(r.Shadow))
}

func shadowText(shadow *throttle.Hold) string {
	if shadow == nil {
		return ""
	}
	until := "never"
	if !shadow.Until.IsZero() {
		until = shadow.Until.Sub(beginning).String()
	}
	return "; shadow" + strings.TrimPrefix(holdText(shadow), ",") + " until " + until
}

// pulledText lists the booked and the overdue jobs.
func pulledText(pulled throttle.Pulled, err error) string {
	if err != nil {
		return err.Error()
	}
	var parts []string
	for _, part := range []struct {
		what string
		jobs []throttle.Reservation
	}{{"booked", pulled.Booked}, {"overdue", pulled.Overdue}} {
		texts := make([]string, len(part.jobs))
		for i, r := range part.jobs {
			texts[i] = fmt.Sprintf("%s %s", r.Job.ID, r.Start.Sub(beginning))
		}
		if len(texts) > 0 {
			parts = append(parts, part.what+" "+strings.Join(texts, ", "))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

func linesText(page inspect.LinesPage, err error) string {
	if err != nil {
		return err.Error()
	}
	texts := make([]string, len(page.Lines))
	for i, line := range page.Lines {
		texts[i] = strings.Join(strings.Fields(fmt.Sprintf("%s %s %d", line.Scope, line.Key, line.Flows)), " ")
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

func holdText(hold *throttle.Hold) string {
	if hold == nil {
		return ""
	}
	what := hold.Limit.String()
	if hold.Paused {
		what = "paused"
	}
	return ", " + strings.Join(strings.Fields(hold.Scope+" "+hold.Key+" "+what), " ")
}

func setText(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

func inForceText(usage inspect.Usage, err error) string {
	if err != nil {
		return err.Error()
	}
	limits := make([]string, len(usage.Limits))
	for i, limit := range usage.Limits {
		limits[i] = limit.Limit.String()
	}
	text := fmt.Sprintf("%s of the %s, %s", strings.Join(limits, ","), cmp.Or(usage.SetFor, "configuration"), usage.Mode)
	if !usage.Paused.IsZero() {
		text += ", paused until " + usage.Paused.Sub(beginning).String()
	}
	return text
}

func doneText[T any](done T, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(done)
}

func usageText(usage inspect.Usage, err error) string {
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
