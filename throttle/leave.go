package throttle

import (
	"context"
	"slices"
)

// mostLeaving is how many jobs one call of the script takes out of the line.
const mostLeaving = 64

// Leave takes jobs that will not come out of line and gives their bookings back, by their IDs;
// the room is free at once. It returns for each job whether it waited or was booked. Leave blocks
// for one round trip per 64 jobs and fails as Reserve does, without fallback; beside an error it
// returns the results of the jobs before.
func (d Driver) Leave(ctx context.Context, ids []string) ([]bool, error) {
	var left []bool
	for some := range slices.Chunk(ids, mostLeaving) {
		done, err := d.throttle.leave(ctx, some...)
		if err != nil {
			return left, err
		}
		left = append(left, done...)
	}
	return left, nil
}

// leave is Leave in one call.
func (t *setup) leave(ctx context.Context, ids ...string) ([]bool, error) {
	if ctx == nil {
		return nil, errNoContext
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
