package worker

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// ErrPlaceLost is the cause with which the context of a handler ends when its task has lost its
// places under a running limit, or is about to: its process stood still for longer than the
// lease, or could not reach Redis in time, and another task may occupy the places. The
// context ends a tenth of the lease, or a second if that is less, before the lease is over by
// the local clock, whether or not Redis answers. See Options.KeepRunning.
var ErrPlaceLost = errors.New("worker: the task's lease was over before it was renewed")

// Cooldown sets how long a handler's task still counts as running, after it has ended, under
// the running limit of a scope. It replaces throttle.Scope.Cooldown: a crawler can wait
// longer after a page that took long. It is at most a lease, and a day. If several shapers
// wrap a handler, Cooldown sets it for the innermost that has the scope. The error is
// ErrNoGrant, also if no grant has the scope.
func Cooldown(ctx context.Context, scope string, after time.Duration) error {
	g := grantIn(ctx, scope)
	if g == nil {
		return ErrNoGrant
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cooldowns == nil {
		g.cooldowns = make(map[string]time.Duration)
	}
	g.cooldowns[scope] = min(max(0, after), mostCooldown)
	return nil
}

// ended is the grant with the cool-downs that its handler has set.
func (g *grant) ended() throttle.Reservation {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.Reservation
	r.Cooldowns = maps.Clone(g.cooldowns) // the handler may have left a goroutine behind
	return r
}

const (
	// renewals is how many times a process renews a place in the time of one lease.
	renewals = 3
	// renewAgain is how soon a failed call is tried again, at most.
	renewAgain = time.Second
	// endsBefore is how long before the end of its lease a handler's context ends, at most;
	// it is a tenth of the lease if that is less.
	endsBefore = time.Second
	// mostCooldown is the longest cool-down: that of the longest lease.
	mostCooldown = 24 * time.Hour
)

// runner keeps the places of the tasks that run here under running limits: it renews their
// leases, all in one call, and gives places back that could not be given back at once.
type runner struct {
	shaper  *Shaper
	changed chan struct{} // a run is due sooner
	warning seldom

	mu      sync.Mutex
	runs    map[*run]struct{}
	started bool
	ended   bool
}

// run is one task that runs, or that has ended and whose places are not given back yet.
type run struct {
	granted throttle.Reservation
	lose    context.CancelCauseFunc
	soon    *time.Timer // goes off shortly before until
	until   time.Time   // the end of its lease, by the local clock
	next    time.Time   // when it is renewed, or given back
	over    bool        // its handler has returned
	lost    bool        // its places are lost, and that is counted
}

func newRunner(s *Shaper) *runner {
	return &runner{shaper: s, changed: make(chan struct{}, 1), runs: make(map[*run]struct{})}
}

// begin notes a task whose handler begins. Its grant was asked for at the time asked. The
// context ends when the task loses its places. For a task under no running limit the run is
// nil.
func (n *runner) begin(ctx context.Context, granted throttle.Reservation, asked time.Time) (context.Context, *run) {
	if granted.Lease <= 0 {
		return ctx, nil
	}
	r := &run{granted: granted}
	ctx, r.lose = context.WithCancelCause(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	r.soon = time.AfterFunc(granted.Lease, func() { n.outlived(r) })
	r.renewed(asked.Add(granted.Start.Sub(granted.Now))) // its lease begins with its start
	n.wake(r)
	return ctx, r
}

// wake makes the goroutine attend to a run, and starts it if it does not run. The caller has mu.
func (n *runner) wake(r *run) {
	n.runs[r] = struct{}{}
	if !n.started {
		n.started = true
		go n.run()
	}
	n.signal()
}

// renewed notes that the lease was renewed at a time, and when to renew it next.
func (r *run) renewed(at time.Time) {
	lease := r.granted.Lease
	r.until, r.next = at.Add(lease), at.Add(lease/renewals)
	if !r.lost {
		r.soon.Reset(time.Until(r.ending()))
	}
}

// ending is when the context of the handler ends if the lease is not renewed.
func (r *run) ending() time.Time { return r.until.Add(-min(r.granted.Lease/10, endsBefore)) }

// outlived ends the context of a handler whose lease is about to be over. If Redis still answers
// in time, the task occupies its places until it ends. The lease may have been renewed since the
// timer went off.
func (n *runner) outlived(r *run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, runs := n.runs[r]; runs && !time.Now().Before(r.ending()) {
		n.lose(r)
	}
}

// isOver reports whether a lease is over by the monotonic clock or by the wall clock: the
// monotonic clock may stand still while the machine is suspended.
func (r *run) isOver(now time.Time) bool {
	return now.After(r.until) || now.Round(0).After(r.until.Round(0))
}

// end gives back the places of a task whose handler has returned. It does not wait for Redis,
// so that the handler's result reaches asynq within the task's Timeout. After Stop it waits
// for a moment, since the process may end with its last task.
func (n *runner) end(ctx context.Context, r *run, granted throttle.Reservation) {
	if r == nil {
		return
	}
	n.mu.Lock()
	r.soon.Stop()
	delete(n.runs, r)
	if n.ended {
		n.signal() // the goroutine ends with the last task
	}
	if r.isOver(time.Now()) {
		n.lose(r)
	}
	ended := &run{granted: granted, over: true, until: r.until, lost: r.lost} // a renewal of r may be under way
	n.mu.Unlock()
	r.lose(nil)
	given := n.shaper.puller.handOver(ended)
	if !n.shaper.isStopped() {
		return
	}
	timer := time.NewTimer(n.shaper.maxWait(ctx))
	defer timer.Stop()
	select {
	case <-given:
	case <-timer.C:
	}
}

// again gives places back later, after a failure, unless the client is closed.
func (n *runner) again(ended []*run, err error) {
	if errors.Is(err, redis.ErrClosed) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range ended {
		r.next = time.Now().Add(renewAgain)
		n.wake(r)
	}
}

func (n *runner) signal() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// stop ends the goroutine when the last task has ended: after Stop the leases of handlers that
// still run are renewed.
func (n *runner) stop() {
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	n.signal()
}

func (n *runner) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, more := n.attend(time.Now())
		if !more {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-n.changed:
		}
	}
}

// attend renews leases and gives places back that are due, and returns how long to sleep. more
// is false after stop, when no task is left.
func (n *runner) attend(now time.Time) (wait time.Duration, more bool) {
	running, over := n.due(now)
	if len(running) > 0 {
		n.renew(running)
	}
	if len(over) > 0 {
		n.giveBack(over)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	wait = time.Hour
	for r := range n.runs {
		wait = min(wait, time.Until(r.next))
	}
	n.started = !n.ended || len(n.runs) > 0
	return max(wait, 0), n.started
}

// due returns the runs to renew, among them runs that will be due soon, and the runs to give back.
func (n *runner) due(now time.Time) (running, over []*run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for r := range n.runs {
		soon := r.granted.Lease / (4 * renewals)
		switch {
		case r.over && !r.until.After(now):
			delete(n.runs, r) // its lease is over
		case r.next.After(now.Add(soon)):
		case r.over:
			over = append(over, r)
		default:
			running = append(running, r)
		}
	}
	if !anyDue(running, now) {
		running = nil
	}
	return running, over
}

// anyDue reports whether a run is due by now: runs that are due soon are renewed with it.
func anyDue(runs []*run, now time.Time) bool {
	for _, r := range runs {
		if !r.next.After(now) {
			return true
		}
	}
	return false
}

func granted(runs []*run) []throttle.Reservation {
	all := make([]throttle.Reservation, len(runs))
	for i, r := range runs {
		all[i] = r.granted
	}
	return all
}

// renew renews leases, and ends the contexts of handlers whose tasks have lost their places.
func (n *runner) renew(runs []*run) {
	asked := time.Now()
	occupied, err := n.shaper.throttle.Renew(context.Background(), granted(runs)...)
	if err != nil && n.warning.due(time.Second) {
		n.shaper.log.Warn("worker: the leases of running tasks cannot be renewed, it is tried again",
			zap.Int("tasks", len(runs)), zap.Error(err))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, r := range runs {
		_, still := n.runs[r]
		switch {
		case !still:
		case err != nil:
			r.next = time.Now().Add(min(renewAgain, r.granted.Lease/(2*renewals)))
		case occupied[i]:
			r.renewed(asked)
		default:
			delete(n.runs, r)
			if !r.over {
				n.lose(r)
			}
		}
	}
}

// lose notes, once, that a task has lost its place, and ends the context of a handler that still
// runs. The caller has mu.
func (n *runner) lose(r *run) {
	if r.lost {
		return
	}
	r.lost = true
	n.shaper.stats.lost.Add(1)
	n.shaper.log.Warn("worker: a running task's lease was over before it was renewed",
		zap.String("job", r.granted.Job.ID), zap.Duration("lease", r.granted.Lease))
	if !r.over && !n.shaper.options.KeepRunning {
		r.lose(ErrPlaceLost)
	}
}

// giveBack gives back places that could not be given back when the handler returned.
func (n *runner) giveBack(runs []*run) {
	_, err := n.shaper.throttle.Done(context.Background(), granted(runs)...)
	if err != nil && n.warning.due(time.Second) {
		n.shaper.log.Warn("worker: the places of tasks that have ended cannot be given back, it is tried again",
			zap.Int("tasks", len(runs)), zap.Error(err))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range runs {
		if err != nil && !errors.Is(err, redis.ErrClosed) {
			r.next = time.Now().Add(renewAgain)
		} else {
			delete(n.runs, r)
		}
	}
	n.shaper.puller.answered()
}
