package campaign

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Warmup is a tenant whose limit grows in steps, as receivers ask of a new sender. The
// zero value is no warm-up.
type Warmup struct {
	Tenant string
	Steps  []Step
}

// Step is the limit from some time after the beginning on.
type Step struct {
	After time.Duration
	Limit throttle.Limit // the zero Limit: the configured limits
}

// Last reports whether the step ends the warm-up: the tenant has the configured limits again.
func (s Step) Last() bool { return s.Limit == (throttle.Limit{}) }

// String returns the limit, or "as all" for the last step.
func (s Step) String() string {
	if s.Last() {
		return "as all"
	}
	return s.Limit.String()
}

// ParseWarmup parses "tenant=0s 2/1s; 10s 4/1s; 20s -": the beginning of each step and its
// limit. The dash stands for the configured limits.
func ParseWarmup(text string) (Warmup, error) {
	if strings.TrimSpace(text) == "" {
		return Warmup{}, nil
	}
	tenant, steps, ok := strings.Cut(text, "=")
	w := Warmup{Tenant: strings.TrimSpace(tenant)}
	if !ok || w.Tenant == "" {
		return w, fmt.Errorf("warmup: %q is not tenant=time limit;…", text)
	}
	for part := range strings.SplitSeq(steps, ";") {
		if err := w.add(part); err != nil {
			return w, fmt.Errorf("warmup: %q: %w", strings.TrimSpace(part), err)
		}
	}
	return w, nil
}

func (w *Warmup) add(text string) error {
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
	if n := len(w.Steps); n > 0 {
		switch last := w.Steps[n-1]; {
		case last.Last():
			return errors.New("comes after the last step")
		case s.After <= last.After:
			return errors.New("comes before the step before it")
		case !s.Last() && (s.Limit.Window != last.Limit.Window || s.Limit.Units <= last.Limit.Units):
			return fmt.Errorf("is not more than %s in the same window", last.Limit)
		}
	}
	w.Steps = append(w.Steps, s)
	return nil
}

// Among reports whether the campaign has mails of the tenant.
func (w Warmup) Among(c *Campaign) bool {
	for _, m := range c.Mails {
		if m.Tenant == w.Tenant {
			return true
		}
	}
	return false
}
