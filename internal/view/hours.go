package view

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// HoursText says whether hours are open and until when, such as "closed until Mon 09:00 Europe/Paris (in 14h0m)". It
// is empty for other limits.
func HoursText(l inspect.LimitUsage, now time.Time) string {
	text := l.HoursText(now)
	if text == "" || l.Anew.IsZero() {
		return text
	}
	return text + " (" + Far(l.Anew, now) + ")"
}
