package throttle

import (
	"context"
	"strconv"
	"time"
)

const (
	// mostWeeded is how many jobs one call of Weed tells, and takes out at most.
	mostWeeded = 100
	// maxAside is how long a lane can be left alone: as long as Pull does at most.
	maxAside = 300 * time.Second
	// plannedWithin is how long after it was planned a task is there at the latest.
	plannedWithin = time.Second
)

// Weed takes jobs out of a lane that nobody will come for, such as those whose tasks
// were deleted, and returns up to a hundred that stand at its front then, with an ID, a
// Weight and a Lane; none that has joined within the last second, since whoever plans it
// may be about to enqueue it. It is for many such jobs in a row: where Pull books each,
// for Cancel to give back, nobody else has a turn meanwhile. Gone are up to a hundred
// jobs as Weed or Pull told them, or none; those that do not stand in the lane any more,
// since they are booked or have left, stay as they are.
//
// The lane is left alone for the time aside from now on, 0 to 300 s, unless it is for
// longer already: others have their turn, and jobs that join it wait. What is given back
// in the lane meanwhile ends that. With 0 it can be pulled at once. Next is a lane to be
// pulled now; empty if none.
//
// Several may weed a lane at once. It blocks for one round trip and fails as Pull does,
// the error also an *InvalidJobError for a lane, jobs or a time that are none.
func (t *Throttle) Weed(ctx context.Context, lane Lane, gone []Job, aside time.Duration) (front []Job, next Lane, err error) {
	switch {
	case ctx == nil:
		return nil, "", &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	case aside < 0 || aside > maxAside:
		return nil, "", &InvalidJobError{Field: "aside", Value: aside, Reason: "is not between 0 and " + formatDuration(maxAside)}
	case len(gone) > mostWeeded:
		return nil, "", &InvalidJobError{Field: "gone", Value: len(gone), Reason: "are more jobs than " + strconv.Itoa(mostWeeded)}
	}
	if _, err := t.meetingsOf(lane); err != nil {
		return nil, "", err
	}
	args := []any{t.nowArgument(), string(lane), t.kept.Milliseconds(), aside.Microseconds(), mostWeeded, plannedWithin.Microseconds(), len(gone)}
	for _, job := range gone {
		if job.ID == "" || job.Weight < 1 || job.Weight > MaxUnits || job.Lane != lane {
			return nil, "", &InvalidJobError{Job: job.ID, Field: "gone", Value: job.Weight, Reason: "is no job of the lane"}
		}
		args = append(args, strconv.FormatInt(job.Weight, 10)+":"+job.ID)
	}
	keys := t.keys.line(lane)
	reply, err := t.redis.run(ctx, weedScript, keys[:], args)
	if err != nil {
		return nil, "", err
	}
	if !reply.is("it") {
		return nil, "", badReply("weed", reply)
	}
	for rest := reply[2:]; len(rest) > 0; rest = rest[2:] {
		if !rest.is("ti") {
			return nil, "", badReply("weed", reply)
		}
		front = append(front, Job{ID: rest.text(0), Weight: rest.integer(1), Lane: lane})
	}
	return front, Lane(reply.text(1)), nil
}
