package wire

import (
	"fmt"
	"time"
)

const (
	// MostBacklogs is how many notes of the backlog are kept, BacklogsKept how long.
	MostBacklogs = 720
	BacklogsKept = 12 * time.Hour
	// Uncounted is the number of jobs if more lanes wait than are read.
	Uncounted = -1

	backlogFormat = "%d %d %d"
)

// BacklogText writes how many jobs waited at an instant, and for how long the first had waited.
func BacklogText(at time.Time, jobs int64, waited time.Duration) string {
	return fmt.Sprintf(backlogFormat, at.UnixMicro(), jobs, waited.Microseconds())
}

// ReadBacklog reads what BacklogText writes; false for other text.
func ReadBacklog(text string) (at time.Time, jobs int64, waited time.Duration, is bool) {
	var micros, us int64
	if _, err := fmt.Sscanf(text, backlogFormat, &micros, &jobs, &us); err != nil {
		return time.Time{}, 0, 0, false
	}
	return Instant(micros), jobs, time.Duration(us) * time.Microsecond, true
}
