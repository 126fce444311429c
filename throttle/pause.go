package throttle

import (
	"context"
	"time"
)

// mostRecalled is how many entries of the agenda one call to Redis looks at.
const mostRecalled = 1000

// Pause closes one scope key until a time, for all processes, from their next
// decision on: nobody starts under it who has not been granted before. The key of
// Global is "". A booked job that comes meanwhile goes to the front of its lane;
// lanes are set aside until the pause ends. Jobs that do not meet the scope key are
// not delayed. A pause is never shortened by another: Resume ends it. A time that is
// past pauses nothing.
//
// The time is meant by the local clock; its distance, up to 400 days, is what counts.
// Pause returns when the pause ends by Redis' clock. It blocks and fails as Reserve
// does, without fallback.
func (t *Throttle) Pause(ctx context.Context, scope, key string, until time.Time) (time.Time, error) {
	if _, err := t.scopeKey(ctx, scope, key); err != nil {
		return time.Time{}, err
	}
	length := t.until(until)
	if length > MaxWindow {
		return time.Time{}, &InvalidJobError{Field: "until", Value: until, Reason: "is more than " + formatDuration(MaxWindow) + " away"}
	}
	reply, err := t.redis.run(ctx, pauseScript, []string{t.keys.control, t.keys.shared[1]},
		[]any{t.nowArgument(), scope + ":" + encode(key), micros(max(0, length)), t.kept.Milliseconds()})
	switch {
	case err != nil:
		return time.Time{}, err
	case !reply.is("ii"):
		return time.Time{}, badReply("pause", reply)
	}
	ends := time.UnixMicro(reply.integer(1))
	if t.options.Observer != nil {
		t.options.Observer.Paused(Pause{Throttle: t.name, Scope: scope, Key: key, Until: ends})
	}
	return ends, nil
}

// Resume ends a pause now. It returns false if the scope key was not paused. Jobs
// that waited for it are pulled within a second. It blocks for a few round trips
// where many lanes wait, and fails as Reserve does, without fallback.
func (t *Throttle) Resume(ctx context.Context, scope, key string) (bool, error) {
	if _, err := t.scopeKey(ctx, scope, key); err != nil {
		return false, err
	}
	reply, err := t.redis.run(ctx, resumeScript, []string{t.keys.control, t.keys.shared[1]},
		[]any{t.nowArgument(), scope + ":" + encode(key)})
	switch {
	case err != nil:
		return false, err
	case !reply.is("i"):
		return false, badReply("resume", reply)
	}
	return reply.integer(0) == 1, t.recall(ctx, scope, key)
}

// recall has the lanes of a scope key looked at again that were set aside. An empty
// key means those of all its keys.
func (t *Throttle) recall(ctx context.Context, scope, key string) error {
	fair, other := "", ""
	switch {
	case key == "":
	case scope == t.fair:
		fair = encode(key)
	default:
		other = scope + "=" + encode(key)
	}
	for cursor := "0"; ; {
		reply, err := t.redis.run(ctx, recallScript, []string{t.keys.shared[1], t.keys.shared[0]}, []any{t.nowArgument(), cursor, mostRecalled, fair, other})
		switch {
		case err != nil:
			return err
		case !reply.is("t"):
			return badReply("recall", reply)
		}
		if cursor = reply.text(0); cursor == "0" {
			return nil
		}
	}
}
