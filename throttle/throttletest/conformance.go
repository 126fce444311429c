package throttletest

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Run tests a subject against the contract, which consists of timelines of calls and their expected answers.
// It calls newSubject for each timeline; newSubject returns an empty throttle with the
// scopes and options that it is given. The timelines run in parallel.
func Run(t *testing.T, newSubject func(t *testing.T, scopes []throttle.Scope, options throttle.Options) Subject) {
	t.Helper()
	all, err := allTimelines()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range all {
		t.Run(line.name, func(t *testing.T) {
			t.Parallel()
			options := line.options
			options.Lookahead = cmp.Or(options.Lookahead, farthest)
			for _, wrong := range line.play(newSubject(t, line.scopes, options)) {
				t.Error(wrong)
			}
		})
	}
}

// farthest is a lookahead within which all jobs are booked, so that none waits in line.
const farthest = 400 * 24 * time.Hour

// play makes the calls of a timeline. It returns the unexpected answers, each with the file and line of its step.
func (t timeline) play(subject Subject) (wrong []string) {
	p := &playing{Subject: subject, grants: make(map[string]throttle.Reservation)}
	for _, s := range t.steps {
		if got := s.call.play(p, s); got != s.want {
			wrong = append(wrong, fmt.Sprintf("%s: %s: got %q, want %q", s.where, s.text, got, s.want))
		}
	}
	return wrong
}

// playing is the subject of a timeline and the grants it has made. A grant is found by its job and nonce; the
// job alone finds its last grant.
type playing struct {
	Subject
	grants map[string]throttle.Reservation
	asked  int // how many times a job has asked
}

// job returns the job of a step, with a nonce of its own unless the step names one.
func (p *playing) job(s step) throttle.Job {
	p.asked++
	s.job.Nonce = cmp.Or(s.job.Nonce, fmt.Sprintf("ask%d", p.asked))
	return s.job
}

// reserve reserves for a step's job, and keeps the grant if there is one.
func (p *playing) reserve(s step) (throttle.Reservation, error) {
	job := p.job(s)
	r, err := p.Reserve(s.at, job)
	if err == nil && r.Outcome == throttle.Granted {
		p.grants[job.ID], p.grants[job.ID+" "+job.Nonce] = r, r
	}
	return r, err
}

// grant returns the grant of a step's job and nonce, or the last grant of the job.
func (p *playing) grant(s step) throttle.Reservation {
	return p.grants[strings.TrimSpace(s.job.ID+" "+s.job.Nonce)]
}

// call is what a step can ask of a subject.
type call struct {
	about string                              // what follows the call's name: aJob, someJobs, aScope or nothing
	words string                              // the names of the words it takes
	set   func(s *step, setting string) error // reads the setting after the colon; nil: the call takes no setting
	play  func(p *playing, s step) string     // makes the call and writes its answer down
}

// What a call is about, if it is about anything.
const (
	aJob     = "job"
	someJobs = "jobs"
	aScope   = "scope"
)

// takes returns the words of the call.
func (c call) takes() words[step] {
	taken := make(words[step])
	for _, name := range strings.Fields(c.words) {
		taken[name] = stepWords[name]
	}
	return taken
}

const jobWords = scopeKey + " weight cost wait deadline nonce plan bounded"

var calls = map[string]call{
	"reserve": {about: aJob, words: jobWords, play: func(p *playing, s step) string {
		return reservationText(p.reserve(s))
	}},
	"peek": {about: aJob, words: jobWords, play: func(p *playing, s step) string {
		return reservationText(p.Peek(s.at, p.job(s)))
	}},
	"cancel": {about: aJob, words: scopeKey, play: func(p *playing, s step) string {
		return doneText(p.Cancel(s.at, s.job))
	}},
	"leave": {about: someJobs, play: func(p *playing, s step) string { return doneTexts(p.Leave(s.at, s.jobs)) }},
	"pull":  {play: func(p *playing, s step) string { return pulledText(p.Pull(s.at)) }},
	"lines": {play: func(p *playing, s step) string { return linesText(p.Lines(s.at, "")) }},

	"release": {about: aJob, words: "nonce", play: func(p *playing, s step) string {
		return doneText(p.Release(s.at, p.grant(s)))
	}},
	"settle": {about: aJob, words: "nonce actual cost", play: func(p *playing, s step) string {
		if s.job.Costs != nil {
			return doneText(p.SettleCosts(s.at, p.grant(s), s.job.Costs))
		}
		return doneText(p.Settle(s.at, p.grant(s), s.actual))
	}},
	"refund": {about: aJob, words: "nonce", play: func(p *playing, s step) string {
		return doneText(p.Refund(s.at, p.grant(s)))
	}},
	"done":  {about: aJob, play: func(p *playing, s step) string { return doneTexts(p.Done(s.at, p.grant(s))) }},
	"renew": {about: aJob, play: func(p *playing, s step) string { return doneTexts(p.Renew(s.at, p.grant(s))) }},

	"usage": {about: aScope, play: func(p *playing, s step) string {
		return usageText(p.Usage(s.at, s.scope, s.key))
	}},
	"inforce": {about: aScope, play: func(p *playing, s step) string {
		return inForceText(p.Usage(s.at, s.scope, s.key))
	}},
	"count": {about: aScope, words: "from to", play: func(p *playing, s step) string {
		return doneText(p.Count(s.at, s.scope, s.key, s.from, s.to))
	}},
	"pause": {about: aScope, words: "until", play: func(p *playing, s step) string {
		return untilText(p.Pause(s.at, s.scope, s.key, s.until))
	}},
	"resume": {about: aScope, play: func(p *playing, s step) string {
		return doneText(p.Resume(s.at, s.scope, s.key))
	}},
	"limits": {about: aScope, words: "until", set: setLimits, play: func(p *playing, s step) string {
		if s.configured {
			return setText(p.ResetLimits(s.at, s.scope, s.key))
		}
		return setText(p.SetLimits(s.at, s.scope, s.key, s.limits, s.until))
	}},
	"mode": {about: aScope, words: "until", set: setMode, play: func(p *playing, s step) string {
		scope := strings.TrimPrefix(s.scope, "throttle") // SetMode takes "" for all scopes
		if s.configured {
			return setText(p.ResetMode(s.at, scope))
		}
		return setText(p.SetMode(s.at, scope, s.mode, s.until))
	}},
}

// configured is the setting of a step that takes back an earlier setting.
const configured = "configured"

func setLimits(s *step, setting string) (err error) {
	if s.configured = setting == configured; !s.configured {
		s.limits, err = throttle.ParseLimits(setting)
	}
	return err
}

func setMode(s *step, setting string) error {
	if s.configured = setting == configured; s.configured {
		return nil
	}
	return s.mode.UnmarshalText([]byte(setting))
}
