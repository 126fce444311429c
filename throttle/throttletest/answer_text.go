package throttletest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func reservationText(r throttle.Reservation, err error) string {
	var late *throttle.DeadlineError
	var full *throttle.LineFullError
	switch {
	case errors.As(err, &full):
		return fmt.Sprintf("full, %s: %s", strings.TrimSpace(full.Scope+" "+full.Key), full.Waiting)
	case errors.As(err, &late):
		return fmt.Sprintf("too late, %s%s", since(late.Start), holdText(late.Hold))
	case err != nil:
		return err.Error()
	case r.Outcome == throttle.Waiting:
		return fmt.Sprintf("%s, %d ahead", r.Outcome, r.Ahead)
	}
	lease := ""
	if r.Lease > 0 {
		lease = " for " + wire.Duration(r.Lease)
	}
	return fmt.Sprintf("%s %s%s%s%s", r.Outcome, since(r.Start), lease, holdText(r.Hold), shadowText(r.Shadow))
}

// since is an instant as a timeline has it.
func since(at time.Time) string { return wire.Duration(at.Sub(beginning)) }

func shadowText(shadow *throttle.Hold) string {
	if shadow == nil {
		return ""
	}
	until := "never"
	if !shadow.Until.IsZero() {
		until = since(shadow.Until)
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
			texts[i] = fmt.Sprintf("%s %s", r.Job.ID, since(r.Start))
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
	return cmp.Or(strings.Join(texts, "; "), "none")
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
	text := fmt.Sprintf("%s of the %s, %s", cmp.Or(strings.Join(limits, ","), "none"),
		cmp.Or(usage.SetFor, "configuration"), usage.Mode)
	if !usage.Paused.IsZero() {
		text += ", paused until " + since(usage.Paused)
	}
	return text
}

func doneText[T any](done T, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(done)
}

// doneTexts are the answers of several jobs.
func doneTexts(done []bool, err error) string { return strings.Trim(doneText(done, err), "[]") }

func untilText(until time.Time, err error) string {
	if err != nil {
		return err.Error()
	}
	return "until " + since(until)
}

func usageText(usage inspect.Usage, err error) string {
	if err != nil {
		return err.Error()
	}
	texts := make([]string, len(usage.Limits))
	for i, limit := range usage.Limits {
		free := "never"
		if !limit.Free.IsZero() {
			free = since(limit.Free)
		}
		texts[i] = fmt.Sprintf("%d used, %d booked, free %s", limit.Used, limit.Booked, free)
	}
	return cmp.Or(strings.Join(texts, "; "), "none")
}
