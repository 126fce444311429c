package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// terms are the end and the reason of a change, as flags give them.
type terms struct{ length, until, why string }

func (t *terms) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.length, "for", "", "for how long, such as 30m, 2h or 1d")
	cmd.Flags().StringVar(&t.until, "until", "", "until when: 18:00, 2026-11-22 18:00, or with a zone as in RFC 3339")
	t.reason(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		// The flag may be an unset variable of a script, which does not want a change without an end.
		for _, name := range []string{"for", "until"} {
			if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
				return usagef("--%s is empty; see %s -h", name, cmd.CommandPath())
			}
		}
		return nil
	}
}

// noEnd refuses --for and --until of a command that sets nothing.
func (t *terms) noEnd() error {
	if t.length != "" || t.until != "" {
		return usagef("nothing is set that could end: leave --for and --until out")
	}
	return nil
}

func (t *terms) reason(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.why, "why", "", "the reason, kept with what is set, in at most 200 bytes")
}

// text adds the end and the reason of a change to the text of what is set.
func (t *terms) text(set string, end time.Time) string {
	return view.WithReason(untilText(set, end), t.why)
}

// end returns when a change ends by itself, on the clock of now; the zero time without either flag.
func (t *terms) end(now time.Time) (time.Time, error) {
	length, until := t.length, t.until
	switch {
	case length != "" && until != "":
		return time.Time{}, usagef("--for and --until: one of them, not both")
	case length == "" && until == "":
		return time.Time{}, nil
	case length != "":
		span, is := view.ParseSpan(length)
		if !is {
			return time.Time{}, usagef("--for %q is not a duration of up to 400 days, such as 30m, 2h or 1d", length)
		}
		return now.Add(span), nil
	}
	end, is := view.ParseInstant(until, now)
	switch {
	case !is:
		return end, usagef("--until %q is none of 18:00, 2026-11-22 18:00, 2026-11-22T18:00:00Z", until)
	case !end.After(now):
		return end, usagef("--until %s is past", end.Format(time.RFC3339))
	}
	return end, nil
}

// byLocalClock converts an instant from Redis' clock to this machine's clock, which inspect.Until and Pause read.
func byLocalClock(at, now time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return time.Now().Add(at.Sub(now))
}

// ofFlags turns an error about the limits, the end or the reason of a change into a usage error that names the flag.
func ofFlags(err error) error {
	var option *throttle.OptionError
	var argument *throttle.ArgumentError
	var limit *throttle.LimitError
	switch {
	case errors.As(err, &option) && option.Field == "Why":
		return usagef("--why: %v %s", option.Value, option.Reason)
	case errors.As(err, &option) && option.Field == "Until":
		return usagef("--until %s", option.Reason)
	case errors.As(err, &option):
		return usagef("%v: %s", option.Value, option.Reason)
	case errors.As(err, &argument) && argument.Argument == "until": // of a pause
		return usagef("--until %s", argument.Reason)
	case errors.As(err, &limit):
		return statusError{misused, err}
	}
	return err
}
