package wire

import (
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// ReadRecord reads what Redis has of a job by its ID: "slot costs arrival lane" of a booked or overdue job, and
// "-arrival lane" of a waiting job, whose costs are in its lane. A counted job has the mark "+" before its lane, a job
// that has lost a slot the mark "="; with a mark, the record of a waiting job has its costs. ReadRecord returns no lane
// if the job is not known.
func ReadRecord(text string) (lane string, costs []int64) {
	parts := strings.Split(text, " ")
	lane = parts[len(parts)-1]
	switch waits := strings.HasPrefix(text, "-"); {
	case waits && len(parts) > 1:
		return lane, nil
	case waits || len(parts) < 4:
		return "", nil
	}
	v := &Values{rest: parts[1:2]}
	return lane, v.costs(lane)
}

// ReadWaiter reads a job in the list of a lane: "arrival:costs:id"; false if the text is foreign.
func ReadWaiter(lane, text string) (w line.Waiter, is bool) {
	v := &Values{rest: strings.SplitN(text, ":", 3)}
	w.Arrival, w.Costs, w.ID = v.Natural(), v.costs(lane), v.Text()
	return w, v.Err() == nil
}
