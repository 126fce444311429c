package metrics

import (
	"errors"
	"strconv"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var _ throttle.Observer = (*Collector)(nil)

// Decided implements throttle.Observer.
func (c *Collector) Decided(d throttle.Decision) {
	r := d.Reservation
	outcome, source := outcomeOf(d), sourceOf(d)
	c.decisions.WithLabelValues(d.Throttle, outcome, source).Inc()
	hold := r.Hold
	var late *throttle.DeadlineError
	if d.Err != nil && errors.As(d.Err, &late) {
		hold = late.Hold
	}
	var full *throttle.LineFullError
	if d.Err != nil && errors.As(d.Err, &full) {
		c.lineFull.WithLabelValues(d.Throttle, full.Scope).Inc()
	}
	if hold != nil {
		c.held.WithLabelValues(d.Throttle, hold.Scope, windowOf(hold)).Inc()
	}
	if d.Err != nil {
		return
	}
	if r.Shadow != nil {
		c.shadowed.WithLabelValues(d.Throttle, r.Shadow.Scope, windowOf(r.Shadow)).Inc()
	}
	c.waits.WithLabelValues(d.Throttle, outcome).Observe(r.Delay().Seconds())
	if r.Outcome == throttle.Granted && r.Source == throttle.FallbackClosed {
		c.noteWaited(d.Throttle, r)
	}
	if !r.Replayed {
		c.units.WithLabelValues(d.Throttle, outcome, source).Add(float64(r.Job.Weight))
		c.noteKeys(d.Throttle, r.Job)
		c.noteAdvance(d)
	}
}

// noteAdvance counts what a granted job charged in advance, or what it started out of an advance.
func (c *Collector) noteAdvance(d throttle.Decision) {
	if d.Advance > 0 {
		c.advancedUnits.WithLabelValues(d.Throttle, eventCharged).Add(float64(d.Advance))
	}
	if d.Reservation.Advanced {
		c.advanced.WithLabelValues(d.Throttle).Inc()
		c.advancedUnits.WithLabelValues(d.Throttle, eventStarted).Add(float64(d.Reservation.Job.Weight))
	}
}

// noteWaited counts how long a granted job waited: once for each scope where it takes units.
func (c *Collector) noteWaited(throttleName string, r throttle.Reservation) {
	priority := strconv.Itoa(r.Job.Priority)
	observe := func(scope string) {
		c.waited.WithLabelValues(throttleName, scope, priority).Observe(r.Waited.Seconds())
	}
	observe(throttle.Global)
	for scope := range r.Job.Keys {
		if unitsOf(r.Job, scope) > 0 {
			observe(scope)
		}
	}
}

// FellBack implements throttle.Observer.
func (c *Collector) FellBack(o throttle.Outage) {
	c.fallbacks.WithLabelValues(o.Throttle, o.Failure).Inc()
}

// Called implements throttle.Observer.
func (c *Collector) Called(s throttle.ScriptCall) {
	c.scripts.WithLabelValues(s.Throttle, s.Script).Observe(s.Took.Seconds())
	if s.Failure != "" {
		c.failures.WithLabelValues(s.Throttle, s.Script, s.Failure).Inc()
	}
}

// Settled implements throttle.Observer.
func (c *Collector) Settled(s throttle.Settlement) {
	c.settlements.WithLabelValues(s.Throttle).Inc()
	if more := s.Actual - s.Charged; more > 0 {
		c.settledUnits.WithLabelValues(s.Throttle, directionAdded).Add(float64(more))
	} else {
		c.settledUnits.WithLabelValues(s.Throttle, directionReturned).Add(float64(-more))
	}
}

// Paused implements throttle.Observer.
func (c *Collector) Paused(p throttle.Pause) { c.pauses.WithLabelValues(p.Throttle, p.Scope).Inc() }

// Adapted implements throttle.Observer.
func (c *Collector) Adapted(a throttle.Adaptation) {
	direction := directionRaised
	if a.Served < a.Before {
		direction = directionLowered
	}
	c.adaptations.WithLabelValues(a.Throttle, a.Scope, direction).Inc()
}

// Started implements throttle.Observer.
func (c *Collector) Started(l throttle.Lateness) {
	c.latenesses.WithLabelValues(l.Throttle).Observe(l.Late.Seconds())
}

// PutBack implements throttle.Observer.
func (c *Collector) PutBack(p throttle.PutBack) {
	c.putBacks.WithLabelValues(p.Throttle, reasonOf(p)).Inc()
}

// Ended implements throttle.Observer.
func (c *Collector) Ended(e throttle.Ending) {
	c.ended.WithLabelValues(e.Throttle, endOf(e.Err)).Inc()
}

// beginAtZero creates the series of a throttle whose labels are known in advance: an alert does not
// see the first count of a series that begins with it.
func (c *Collector) beginAtZero(throttleName string) {
	for _, outcome := range []throttle.Outcome{throttle.Granted, throttle.Booked, throttle.Waiting} {
		c.decisions.WithLabelValues(throttleName, outcome.String(), sourceRedis)
		c.units.WithLabelValues(throttleName, outcome.String(), sourceRedis)
	}
	for _, source := range []throttle.Fallback{throttle.FallbackOpen, throttle.FallbackLocal} {
		c.decisions.WithLabelValues(throttleName, throttle.Granted.String(), sourceText(source))
	}
	c.decisions.WithLabelValues(throttleName, outcomeTooLate, sourceRedis)
	for _, outcome := range undecided {
		c.decisions.WithLabelValues(throttleName, outcome, sourceNone)
	}
	for _, failure := range failures {
		c.fallbacks.WithLabelValues(throttleName, failure)
	}
	for _, reason := range reasons {
		c.putBacks.WithLabelValues(throttleName, reason)
	}
	for _, end := range ends {
		c.ended.WithLabelValues(throttleName, end)
	}
	for _, direction := range []string{directionAdded, directionReturned} {
		c.settledUnits.WithLabelValues(throttleName, direction)
	}
	c.settlements.WithLabelValues(throttleName)
	for _, event := range []string{eventCharged, eventStarted} {
		c.advancedUnits.WithLabelValues(throttleName, event)
	}
	c.advanced.WithLabelValues(throttleName)
}
