package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Backlog is how much waited in line at one instant.
type Backlog struct {
	At time.Time `json:"at"` // on Redis' clock
	// Jobs is how many jobs waited without a slot; negative if they were in more than 20,000
	// lanes, which are not counted.
	Jobs int64 `json:"jobs"`
	// Waited is how long the job that came first had waited; 0 if no job waited or if the time is not known.
	Waited time.Duration `json:"waited_ns"`
}

// Backlogs returns how much waited in line in the last twelve hours, the oldest first. A process
// that decides notes the backlog about once a minute, and less often if the line takes long to
// read. Minutes in which no process had an answer from Redis are missing. Backlogs blocks for one
// round trip and fails as Usage does.
func (t *Inspector) Backlogs(ctx context.Context) ([]Backlog, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	list, err := t.list(ctx, t.prefix+"backlog", 0, wire.MostBacklogs-1)
	if err != nil {
		return nil, err
	}
	backlogs := make([]Backlog, 0, len(list))
	for _, text := range slices.Backward(list) {
		if at, jobs, waited, is := wire.ReadBacklog(text); is {
			backlogs = append(backlogs, Backlog{at, jobs, waited})
		}
	}
	return backlogs, nil
}
