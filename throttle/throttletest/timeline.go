package throttletest

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// timelineFiles are the timelines of the contract. timelines/README.md says how they are written.
//
//go:embed timelines/*.txt
var timelineFiles embed.FS

// beginning is the instant 0 of every timeline: a Friday, the 15th of January 2027, at 8 o'clock in UTC. It is the edge
// of every sub-window in use.
var beginning = time.UnixMicro(1_800_000_000_000_000)

// timeline is a story of calls, each with its answer.
type timeline struct {
	where   string // file and line
	name    string
	scopes  []throttle.Scope
	options throttle.Options
	steps   []step
}

// step is one call and what it must answer.
type step struct {
	where, text string // file and line, and what stands there before the answer
	at          time.Time
	call        call
	want        string

	// What the call is about, and the values of its words. A call uses those that it takes.
	job        throttle.Job
	jobs       []string // IDs
	scope, key string
	actual     int64
	until      time.Time
	from, to   time.Duration // ago
	limits     []throttle.Limit
	mode       throttle.Mode
	configured bool // the setting ends, and the configuration is in force again
}

// allTimelines reads all files.
func allTimelines() ([]timeline, error) {
	files, err := timelineFiles.ReadDir("timelines")
	if err != nil {
		return nil, err
	}
	var all []timeline
	for _, file := range files {
		name := path.Join("timelines", file.Name())
		text, err := timelineFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		read, err := readTimelines(name, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, read...)
	}
	return all, nil
}

// readTimelines reads the text of a file. An error begins with the file and the line.
func readTimelines(file, text string) ([]timeline, error) {
	var read []timeline
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(" "+line, " #")
		line = strings.TrimSpace(line)
		where := fmt.Sprintf("%s:%d", file, number)
		var err error
		switch name, begins := strings.CutPrefix(line, "timeline "); {
		case line == "":
			continue
		case begins:
			err = whole(read)
			read = append(read, timeline{where: where, name: name})
		case len(read) == 0:
			err = errors.New("a file begins with a timeline")
		default:
			err = read[len(read)-1].add(where, line)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	if err := whole(read); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", file, number, err)
	}
	return read, nil
}

// whole checks the last timeline that was read.
func whole(read []timeline) error {
	if len(read) == 0 {
		return nil
	}
	switch last := read[len(read)-1]; {
	case len(last.scopes) == 0:
		return fmt.Errorf("the timeline %q has no scope", last.name)
	case len(last.steps) == 0:
		return fmt.Errorf("the timeline %q has no step", last.name)
	}
	return nil
}

// add reads a line of a timeline: a step, more of the last answer, or settings.
func (t *timeline) add(where, line string) error {
	if more, is := strings.CutPrefix(line, "->"); is {
		if len(t.steps) == 0 {
			return errors.New("no step comes before this answer")
		}
		t.steps[len(t.steps)-1].want += " " + strings.TrimSpace(more)
		return nil
	}
	if line[0] >= '0' && line[0] <= '9' {
		s, err := readStep(where, line)
		t.steps = append(t.steps, s)
		return err
	}
	if len(t.steps) > 0 {
		return errors.New("want a step: a time, a call, -> and the answer")
	}
	for setting := range strings.SplitSeq(line, ";") {
		if err := t.set(setting); err != nil {
			return err
		}
	}
	return nil
}

// set reads a setting: a scope or an option.
func (t *timeline) set(setting string) error {
	head, limits, hasLimits := strings.Cut(setting, ":")
	fields := strings.Fields(head)
	if len(fields) == 0 || fields[0] != "scope" {
		return readWords(&t.options, strings.Fields(setting), optionWords)
	}
	if len(fields) == 1 {
		return errors.New("a scope has no name")
	}
	scope := throttle.Scope{Name: fields[1]}
	err := readWords(&scope, fields[2:], scopeWords)
	if err == nil && hasLimits {
		scope.Limits, err = throttle.ParseLimits(strings.TrimSpace(limits))
	}
	t.scopes = append(t.scopes, scope)
	return err
}

// readStep reads a time, a call, what it is about, its words, the setting behind a colon and the answer.
func readStep(where, line string) (step, error) {
	asked, want, has := strings.Cut(line, "->")
	if !has {
		return step{}, errors.New("a step has its answer behind ->")
	}
	s := step{where: where, text: strings.Join(strings.Fields(asked), " "), want: strings.TrimSpace(want)}
	asked, setting, sets := strings.Cut(asked, ": ")
	fields := strings.Fields(asked)
	at, err := time.ParseDuration(fields[0])
	if err != nil {
		return step{}, err
	}
	if len(fields) == 1 {
		return step{}, errors.New("a step has a call behind its time")
	}
	called, known := calls[fields[1]]
	if !known {
		return step{}, fmt.Errorf("no call %q: the calls are %s", fields[1], names(calls))
	}
	s.at, s.call = beginning.Add(at), called
	s.job = throttle.Job{Weight: 1, Keys: make(map[string]string)}
	rest, err := s.about(fields[2:])
	if err != nil {
		return step{}, fmt.Errorf("%s %w", fields[1], err)
	}
	if err := readWords(&s, rest, called.takes()); err != nil {
		return step{}, err
	}
	switch {
	case called.set != nil:
		err = called.set(&s, strings.TrimSpace(setting))
	case sets:
		err = fmt.Errorf("%s has no setting behind a colon", fields[1])
	}
	return s, err
}

// about reads what the call is about, and returns the other fields.
func (s *step) about(fields []string) ([]string, error) {
	if s.call.about == "" {
		return fields, nil
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("names no %s", s.call.about)
	}
	switch s.call.about {
	case someJobs:
		s.jobs = fields
		return nil, nil
	case aScope:
		s.scope, s.key, _ = strings.Cut(fields[0], "=")
	default:
		s.job.ID = fields[0]
	}
	return fields[1:], nil
}

// words read the values of a T, each by its name.
type words[T any] map[string]func(to *T, value string) error

// scopeKey is the name of a word such as tenant=a.
const scopeKey = "SCOPE=KEY"

// alone are the words that have no value behind them.
var alone = []string{"plan", "bounded", "optional"}

func readWords[T any](to *T, fields []string, known words[T]) error {
	for len(fields) > 0 {
		name, value := fields[0], fields[0]
		fields = fields[1:]
		if strings.Contains(name, "=") {
			name = scopeKey
		}
		read := known[name]
		if read == nil {
			return fmt.Errorf("no word %q here, only %s", value, cmp.Or(names(known), "none"))
		}
		if name != scopeKey && !slices.Contains(alone, name) {
			if len(fields) == 0 {
				return fmt.Errorf("%s has no value", name)
			}
			value, fields = fields[0], fields[1:]
		}
		if err := read(to, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func names[T any](known map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

var optionWords = words[throttle.Options]{
	"grace":         func(o *throttle.Options, v string) error { return span(&o.Grace, v) },
	"lookahead":     func(o *throttle.Options, v string) error { return span(&o.Lookahead, v) },
	"settle-within": func(o *throttle.Options, v string) error { return span(&o.SettleWithin, v) },
	"mode":          func(o *throttle.Options, v string) error { return o.Mode.UnmarshalText([]byte(v)) },
	"share":         func(o *throttle.Options, v string) error { return pair(&o.Shares, v, strconv.Atoi) },
}

var scopeWords = words[throttle.Scope]{
	"optional":      func(s *throttle.Scope, _ string) error { s.Optional = true; return nil },
	"mode":          func(s *throttle.Scope, v string) error { return s.Mode.UnmarshalText([]byte(v)) },
	"cooldown":      func(s *throttle.Scope, v string) error { return span(&s.Cooldown, v) },
	"waiting-jobs":  func(s *throttle.Scope, v string) error { return number(&s.MaxWaiting.Jobs, v) },
	"waiting-units": func(s *throttle.Scope, v string) error { return number(&s.MaxWaiting.Units, v) },
}

var stepWords = words[step]{
	scopeKey: func(s *step, v string) error {
		return pair(&s.job.Keys, v, func(text string) (string, error) { return text, nil })
	},
	"weight":   func(s *step, v string) error { return number(&s.job.Weight, v) },
	"cost":     func(s *step, v string) error { return pair(&s.job.Costs, v, units) },
	"wait":     func(s *step, v string) error { return span(&s.job.MaxWait, v) },
	"deadline": func(s *step, v string) error { return instant(&s.job.Deadline, v) },
	"nonce":    func(s *step, v string) error { s.job.Nonce = v; return nil },
	"plan":     func(s *step, _ string) error { s.job.Plan = true; return nil },
	"bounded":  func(s *step, _ string) error { s.job.Bounded = true; return nil },
	"actual":   func(s *step, v string) error { return number(&s.actual, v) },
	"until":    func(s *step, v string) error { return instant(&s.until, v) },
	"from":     func(s *step, v string) error { return span(&s.from, v) },
	"to":       func(s *step, v string) error { return span(&s.to, v) },
}

func units(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func number(to *int64, text string) (err error) {
	*to, err = units(text)
	return err
}

func span(to *time.Duration, text string) (err error) {
	*to, err = time.ParseDuration(text)
	return err
}

func instant(to *time.Time, text string) error {
	var since time.Duration
	err := span(&since, text)
	*to = beginning.Add(since)
	return err
}

// pair reads a name and its value, such as tenant=2.
func pair[V any](to *map[string]V, text string, read func(string) (V, error)) error {
	name, text, has := strings.Cut(text, "=")
	if !has {
		return fmt.Errorf("want a name and a value such as %s=2", name)
	}
	value, err := read(text)
	if *to == nil {
		*to = make(map[string]V)
	}
	(*to)[name] = value
	return err
}
