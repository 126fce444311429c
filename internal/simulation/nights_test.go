package simulation_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A world with schedules may have nothing to do until the next day, week or month. Processes that wait so long would
// ask Redis some hundred thousand times. So they are shut down when nothing is under way any more, and others begin
// shortly before the next edge that may free room: a night. Both clocks go on meanwhile.

// dawn is how long before an edge the processes of the next day begin, by Redis' clock.
const dawn = 10 * time.Second

// rest lets a night pass if the next event is an edge.
func (w *world) rest() {
	if !w.plan.scheduled || time.Since(w.began) < w.plan.lastEvent() || !w.idle() {
		return
	}
	edge := w.nextEdge()
	if edge.IsZero() {
		edge = w.nextTask()
	}
	if edge.Sub(w.now()) < 4*dawn {
		return
	}
	w.nights++
	evening := time.Now()
	alive := w.alive()
	for _, r := range w.processes {
		r.leave()
	}
	w.sleep(edge.Add(-dawn).Sub(w.now()))
	w.slept += time.Since(evening)
	for _, r := range alive {
		w.begin(r.process)
	}
}

// leave ends a process in order that has nothing to do. Goroutines that are left of a dead process end with it.
func (r *running) leave() {
	r.mu.Lock()
	stopped := r.stopped
	r.ended, r.stopped = true, true
	r.mu.Unlock()
	if !stopped {
		r.shaper.Stop()
		r.server.Shutdown()
	}
}

// sleep lets time pass while nothing runs. Keys age in leaps of hours.
func (w *world) sleep(d time.Duration) {
	w.asleep.Store(true)
	time.Sleep(d)
	w.redis.mu.Lock()
	w.backend.age(w)
	w.redis.mu.Unlock()
	w.asleep.Store(false)
	select {
	case w.morning <- struct{}{}:
	default:
	}
}

// night is how much longer work may take after a night than it would without the night.
const night = 2 * time.Minute

// endOf returns when the current period of a quota ends; the zero time for other limits.
func (w *world) endOf(l throttle.Limit) (ends time.Time) {
	if of, err := calendar.Of(l.Calendar.String()); err == nil && isQuota(l) {
		now := w.now()
		ends = of.Edge(of.Period(now) + 1)
	}
	return ends
}

// lastEvent returns when the last drawn event has happened.
func (p *plan) lastEvent() time.Duration {
	last := p.span
	for _, f := range p.faults {
		last = max(last, f.at+f.lasts)
	}
	return last + time.Second
}

// idle reports whether no task runs, none has started for a while, and none will soon: jobs in line may ask again, and
// the slots of booked jobs are far.
func (w *world) idle() bool {
	ctx, client := context.Background(), w.operator.wire.client
	pipe := client.Pipeline()
	pending, active := pipe.LLen(ctx, "asynq:{default}:pending"), pipe.LLen(ctx, "asynq:{default}:active")
	soon := &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(time.Now().Add(3*dawn).Unix(), 10)}
	scheduled := pipe.ZRangeByScore(ctx, "asynq:{default}:scheduled", soon)
	retry := pipe.ZRangeByScore(ctx, "asynq:{default}:retry", soon)
	if _, err := pipe.Exec(ctx); err != nil {
		w.errorf("what is to do: %v", err)
	}
	waiting := w.waiting()
	for _, task := range slices.Concat(scheduled.Val(), retry.Val()) {
		if !slices.ContainsFunc(waiting, func(id string) bool { return strings.Contains(id, "/"+task+"/") }) {
			return false
		}
	}
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	for _, slot := range w.account.slots {
		if at := time.UnixMicro(number(slot)); at.After(w.now()) && at.Before(w.now().Add(3*dawn)) {
			return false
		}
	}
	return pending.Val()+active.Val() == 0 && time.Since(w.account.granted) > 3*dawn
}

// nextEdge returns the first instant of Redis' clock at which a job of the line may start that a quota, hours or its
// slot hold back now; the zero time if there is none. No check depends on it: an edge that it misses makes a night
// longer.
func (w *world) nextEdge() (next time.Time) {
	w.audit()
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	now := w.now()
	take := func(starts time.Time) {
		if starts.After(now) && (next.IsZero() || starts.Before(next)) {
			next = starts
		}
	}
	for _, line := range w.account.lines {
		for id := range line {
			take(w.mayStart(w.jobs[strings.Split(id, "/")[1]], now))
		}
	}
	for _, slot := range w.account.slots {
		take(time.UnixMicro(number(slot)))
	}
	return next
}

// nextTask returns when asynq brings the first task that it keeps for later, by Redis' clock; the zero time if it keeps
// none. After Redis has lost the line, its tasks come when they were expected to start.
func (w *world) nextTask() (next time.Time) {
	for _, state := range []string{"scheduled", "retry"} {
		first, err := w.operator.wire.client.ZRangeWithScores(context.Background(), "asynq:{default}:"+state, 0, 0).Result()
		w.must("ZRANGE", err)
		if len(first) == 0 {
			continue
		}
		if at := w.now().Add(time.Until(time.Unix(int64(first[0].Score), 0))); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// mayStart returns when the hours and the quotas of a job's scope keys let it start.
func (w *world) mayStart(j *job, now time.Time) time.Time {
	at := now
	for _, scope := range w.plan.scopes {
		if j.cost(scope.Name) == 0 {
			continue
		}
		for _, l := range scope.Limits {
			if hours, err := calendar.HoursOf(l.Hours); err == nil && hours.Opens(now).After(at) {
				at = hours.Opens(now)
			}
			if ends := w.endOf(l); ends.After(at) && w.account.isFull(scope.Name+":"+j.key(scope.Name), l, j.cost(scope.Name)) {
				at = ends
			}
		}
	}
	return at
}

// mostNights returns how many nights a world has at most: one for each period that the work takes or that a ramp needs
// before its units hold for good, and some for hours. With hours there are twice as many: a period may begin while they
// are closed.
func (p *plan) mostNights() int {
	most := 20.0
	for _, scope := range p.scopes {
		for _, l := range scope.Limits {
			if !isQuota(l) {
				continue
			}
			var longest float64
			for _, key := range p.keys(scope.Name) {
				longest = max(longest, p.windowsOf(&scope, key, l))
			}
			most += longest + float64(p.climb(l))
		}
		for _, r := range p.heard(scope.Name) {
			most += float64(len(r.Limits))
		}
	}
	if p.hasHours() {
		most *= 2
	}
	return int(most)
}

func (p *plan) hasHours() bool {
	return slices.ContainsFunc(p.scopes, func(s throttle.Scope) bool {
		return slices.ContainsFunc(s.Limits, func(l throttle.Limit) bool { return l.Hours != "" })
	})
}
