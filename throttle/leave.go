package throttle

import (
	"context"
	"slices"
)

// mostLeaving is how many jobs one call of the script takes out of the line.
const mostLeaving = 64

// Leave gives back the places in line and the bookings of jobs that will not come, by
// their IDs, and says of each whether it had one. They are free at once. It blocks for
// one round trip per 64 jobs and fails as Reserve does, without fallback; beside an
// error it says what was done before.
func (t *Inspector) Leave(ctx context.Context, ids []string) ([]bool, error) {
	var left []bool
	for some := range slices.Chunk(ids, mostLeaving) {
		done, err := t.leave(ctx, some...)
		if err != nil {
			return left, err
		}
		left = append(left, done...)
	}
	return left, nil
}

// leave gives back what jobs have that will not come.
func (t *setup) leave(ctx context.Context, ids ...string) ([]bool, error) {
	if ctx == nil {
		return nil, &InvalidJobError{Field: "ctx", Value: nil, Reason: "is nil"}
	}
	for _, id := range ids {
		if err := checkID(id); err != nil {
			return nil, err
		}
	}
	reply, err := t.redis.run(ctx, leaveScript, t.arguments(ids))
	if err != nil {
		return nil, err
	}
	left, err := t.done("leave", reply, len(ids))
	return left.Done, err
}
