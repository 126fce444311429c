package campaign

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Raise is a tenant whose limit is raised in steps while a run lasts. The zero value is no raise.
type Raise struct {
	Tenant string
	Steps  []Step
}

// Step is the limit from some time after the beginning on.
type Step struct {
	After time.Duration
	Limit throttle.Limit // the zero Limit: the configured limits
}

// Last reports whether the step ends the raise: the tenant has the configured limits again.
func (s Step) Last() bool { return s.Limit == (throttle.Limit{}) }

// String returns the limit, or "as all" for the last step.
func (s Step) String() string {
	if s.Last() {
		return "as all"
	}
	return s.Limit.String()
}

// ParseRaise parses "tenant=0s 2/1s; 10s 4/1s; 20s -": the beginning of each step and its
// limit. The dash stands for the configured limits.
func ParseRaise(text string) (Raise, error) {
	if strings.TrimSpace(text) == "" {
		return Raise{}, nil
	}
	tenant, steps, ok := strings.Cut(text, "=")
	r := Raise{Tenant: strings.TrimSpace(tenant)}
	if !ok || r.Tenant == "" {
		return r, fmt.Errorf("%q is not tenant=time limit;…", text)
	}
	for part := range strings.SplitSeq(steps, ";") {
		if err := r.add(part); err != nil {
			return r, fmt.Errorf("%q: %w", strings.TrimSpace(part), err)
		}
	}
	return r, nil
}

func (r *Raise) add(text string) error {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return errors.New("is not a time and a limit, such as 10s 4/1s")
	}
	var s Step
	var err error
	if s.After, err = time.ParseDuration(fields[0]); err != nil || s.After < 0 || s.After > maxArrival {
		return fmt.Errorf("%s is not a duration from 0s to %s", fields[0], maxArrival)
	}
	if fields[1] != "-" {
		if s.Limit, err = throttle.ParseLimit(fields[1]); err != nil {
			return err
		}
	}
	if n := len(r.Steps); n > 0 {
		switch last := r.Steps[n-1]; {
		case last.Last():
			return errors.New("comes after the last step")
		case s.After <= last.After:
			return errors.New("comes before the step before it")
		case !s.Last() && (s.Limit.Window != last.Limit.Window || s.Limit.Units <= last.Limit.Units):
			return fmt.Errorf("is not more than %s in the same window", last.Limit)
		}
	}
	r.Steps = append(r.Steps, s)
	return nil
}

// Among reports whether the campaign has mails of the tenant.
func (r Raise) Among(c *Campaign) bool {
	for _, m := range c.Mails {
		if m.Tenant == r.Tenant {
			return true
		}
	}
	return false
}
