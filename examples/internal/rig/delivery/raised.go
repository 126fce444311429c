package delivery

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// raisedStep is what started under one step of a raised limit.
type raisedStep struct {
	Tenant  string  `json:"tenant"`
	Limit   string  `json:"limit"`
	FromS   float64 `json:"from_s"`
	UntilS  float64 `json:"until_s"`
	Mails   int     `json:"mails"`
	Units   int64   `json:"units"`
	Fullest int64   `json:"fullest_window_units"` // units in the fullest window of the limit; 0 for the last step
}

// raised returns what started under each step, up to the tenant's last start.
func (r result) raised() []raisedStep {
	var steps []raisedStep
	events := check.ByKey(grantEvents(r.granted), campaign.ScopeTenant)
	changes := slices.DeleteFunc(slices.Clone(r.law.Changes),
		func(c check.Change) bool { return c.Scope != campaign.ScopeTenant })
	for i, c := range changes {
		until := r.end().Add(time.Microsecond)
		if i+1 < len(changes) {
			until = changes[i+1].At
		}
		s := raisedStep{Tenant: c.Key, Limit: "as all", FromS: max(0, r.since(c.At)), UntilS: r.since(until)}
		inForce := func(at int64) bool { return at >= c.At.UnixMicro() && at < until.UnixMicro() }
		if len(c.Limits) > 0 { // the first is the step's, the others are those that hold all the time
			s.Limit = c.Limits[0].String()
			s.Fullest, _ = check.FullestWindow(events[c.Key], throttle.Unlimited, c.Limits[0].Window.Microseconds(), inForce)
		}
		for _, e := range events[c.Key] {
			if inForce(e.At) {
				s.Mails++
				s.Units += e.Units
			}
		}
		if s.UntilS > s.FromS {
			steps = append(steps, s)
		}
	}
	return steps
}

func writeRaised(w io.Writer, steps []raisedStep) {
	if len(steps) == 0 {
		return
	}
	table := report.NewTable(w)
	fmt.Fprintf(table, "raised limit of %s\tfrom\tuntil\tmails\tunits\tfullest window\n", steps[0].Tenant)
	for _, s := range steps {
		fullest := ""
		if s.Fullest > 0 {
			fullest = fmt.Sprintf("%14d", s.Fullest)
		}
		fmt.Fprintf(table, "%s\t%5.2f s\t%5.2f s\t%5d\t%5d\t%s\n", s.Limit, s.FromS, s.UntilS, s.Mails, s.Units, fullest)
	}
	table.Flush()
	fmt.Fprintln(w)
}
