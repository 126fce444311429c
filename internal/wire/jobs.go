package wire

import (
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// ReadRecord reads what Redis has of a job by its ID: "slot costs arrival lane" of a booked or overdue job, and
// "-arrival lane" of a waiting job, whose costs are in its lane. It returns no lane if the job is not known.
func ReadRecord(text string) (lane string, costs []int64) {
	if strings.HasPrefix(text, "-") {
		_, lane, _ = strings.Cut(text, " ")
		return lane, nil
	}
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 {
		return "", nil
	}
	v := &Values{rest: parts[1:2]}
	return parts[3], v.costs(parts[3])
}

// ReadWaiter reads a job in the list of a lane: "arrival:costs:id"; false if the text is foreign.
func ReadWaiter(lane, text string) (w line.Waiter, is bool) {
	v := &Values{rest: strings.SplitN(text, ":", 3)}
	w.Arrival, w.Costs, w.ID = v.Natural(), v.costs(lane), v.Text()
	return w, v.Err() == nil
}
