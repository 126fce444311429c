package throttle

import (
	"fmt"
	"net/url"
	"time"
)

// SetOption says more about what is set at run time: until when, why, by whom.
type SetOption func(*terms)

// terms are what the options of a change say.
type terms struct {
	until   time.Time
	why, by string
}

// Until ends what is set at a time, by itself; from that instant on what is set more
// generally, or each process' configuration, is in force again. The time is meant by the
// local clock; its distance, up to 400 days, is what counts. The zero time sets it until it
// is taken back.
func Until(end time.Time) SetOption { return func(t *terms) { t.until = end } }

// Why gives the reason, for people, in at most 200 bytes.
func Why(reason string) SetOption { return func(t *terms) { t.why = reason } }

// By names the person who sets it, in at most 100 bytes. The process that sets it is named in
// any case, with the user that it runs as.
func By(person string) SetOption { return func(t *terms) { t.by = person } }

const (
	mostWhy = 200 // bytes
	mostBy  = 100
)

// termsOf reads options, and refuses what is too long.
func termsOf(options []SetOption) (terms, error) {
	var t terms
	for _, option := range options {
		if option != nil {
			option(&t)
		}
	}
	switch {
	case len(t.why) > mostWhy:
		return t, &OptionError{Field: "Why", Value: len(t.why), Reason: fmt.Sprintf("bytes are more than %d", mostWhy)}
	case len(t.by) > mostBy:
		return t, &OptionError{Field: "By", Value: len(t.by), Reason: fmt.Sprintf("bytes are more than %d", mostBy)}
	}
	return t, nil
}

// left is how long what is set lasts, 0 for until it is taken back.
func (t *setup) left(of terms) (time.Duration, error) {
	if of.until.IsZero() {
		return 0, nil
	}
	left := t.until(of.until)
	switch {
	case left < time.Microsecond:
		return 0, &OptionError{Field: "Until", Value: of.until, Reason: "is past"}
	case left > maxWindow:
		return 0, &OptionError{Field: "Until", Value: of.until, Reason: "is more than " + formatDuration(maxWindow) + " away"}
	}
	return left, nil
}

// who is the person, and the process with its user.
func (t terms) who() string {
	if t.by == "" {
		return actor()
	}
	return t.by + ", " + actor()
}

// note is by whom and why, as scripts keep it: without what separates the parts of what is set.
func (t terms) note() string {
	return url.QueryEscape(t.who()) + "|" + url.QueryEscape(t.why)
}
