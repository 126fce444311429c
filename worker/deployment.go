package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A job's ID names a task by its queue and its ID, which mean something in one Redis of
// asynq's only: who pulls a job of another one finds no such task and gives its place to
// others. So a throttle belongs to one deployment of asynq at a time, all servers and
// clients with one Redis and database. A deployment has an ID, kept under a key of asynq's
// Redis; the throttle's Redis keeps whose the throttle is, for as long as somebody of that
// deployment says so again.

const (
	// deploymentKey is where asynq's Redis keeps the deployment's ID, without expiry.
	deploymentKey = "asynq:throttle:deployment"
	// heldFor is how long a throttle belongs to a deployment that has ended.
	heldFor = time.Minute
	// heldAgain is how often it says that it has not.
	heldAgain = 15 * time.Second
	// claimedAgain is how soon a claim is made again that was refused or not answered.
	claimedAgain = 2 * time.Second
	// claimKnown is how long tasks wait for the first claim when a server begins, and a
	// Client for one of its own: nobody else's limits are broken meanwhile.
	claimKnown = 250 * time.Millisecond
)

// DeploymentError says that a throttle belongs to another deployment of asynq, with
// another Redis or database. One of a throttle's deployments is to use another throttle's
// name, or to end: a minute later the throttle belongs to the other.
type DeploymentError struct {
	Throttle   string // its name
	Deployment string // the ID of this deployment
	Holder     string // the ID of the one whose it is
}

func (e *DeploymentError) Error() string {
	return fmt.Sprintf("worker: the throttle %s belongs to the asynq deployment %s, this is %s", e.Throttle,
		e.Holder, e.Deployment)
}

// Is tells that nothing is decided for this deployment: the error is of the class
// throttle.ErrUnavailable.
func (e *DeploymentError) Is(target error) bool { return target == throttle.ErrUnavailable }

// store is what is asked of both clients.
type store interface {
	Get(ctx context.Context, key string) *redis.StringCmd
	Set(ctx context.Context, key string, value any, expiration time.Duration) *redis.StatusCmd
	SetNX(ctx context.Context, key string, value any, expiration time.Duration) *redis.BoolCmd
	PExpire(ctx context.Context, key string, expiration time.Duration) *redis.BoolCmd
}

// deployment claims a throttle for asynq's deployment.
type deployment struct {
	throttle           string // its name
	ours, theThrottles store  // asynq's Redis and the throttle's
	log                *zap.Logger
	complaint, warning seldom
	claims, keeps      flight        // one claim, and one write of the ID, is under way at a time
	known              chan struct{} // closed with the end of the first claim, or claimKnown after its begin
	knowing            sync.Once

	mu     sync.Mutex
	id     string    // empty until it is known
	holder string    // another deployment's; empty if the throttle is not known to be another's
	again  time.Time // when the next claim is due
}

// newDeployment returns nil if the throttle's client does not take single commands: then
// nothing is claimed.
func newDeployment(throttle string, client any, asynqs store, log *zap.Logger) *deployment {
	theThrottles, can := client.(store)
	if !can {
		return nil
	}
	return &deployment{throttle: throttle, ours: asynqs, theThrottles: theThrottles, log: log, known: make(chan struct{})}
}

// Claim takes the throttle for the deployment of asynq that the shaper's client belongs
// to. A Shaper does so by itself, from the first Wrap on: while the throttle is another
// deployment's it puts tasks back and leaves the line alone, and says so at error level.
// A program that should rather end calls Claim before it starts its server. The error is
// a *DeploymentError, or that of a Redis that could not be asked. It blocks for a few
// round trips, as long as the clients let it.
func (s *Shaper) Claim(ctx context.Context) error { return s.deployment.claim(ctx) }

// claim finds out whose the throttle is, and takes it if it is nobody's. A claim that is
// under way is waited for, until the context ends.
func (d *deployment) claim(ctx context.Context) error {
	if d == nil {
		return nil
	}
	claim := d.claims.begin(func() error { return d.decide(context.WithoutCancel(ctx)) })
	select {
	case <-claim.done:
		return claim.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decide is one claim.
func (d *deployment) decide(ctx context.Context) error {
	holder, err := d.ask(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.again = time.Now().Add(claimedAgain)
	if err == nil {
		d.holder = ""
		if holder == d.id {
			d.again = time.Now().Add(heldAgain)
		} else {
			d.holder = holder
			err = d.refusal()
		}
	}
	d.waitNoMore()
	return err
}

// waitNoMore lets tasks go on that wait for the first claim.
func (d *deployment) waitNoMore() {
	if d != nil {
		d.knowing.Do(func() { close(d.known) })
	}
}

// ask returns the deployment whose the throttle is. A deployment that has the throttle needs
// the throttle's Redis only: asynq's may be away for longer than a claim lasts.
func (d *deployment) ask(ctx context.Context) (holder string, err error) {
	d.mu.Lock()
	known := d.id
	d.mu.Unlock()
	if known != "" {
		holder, err = d.take(ctx, known)
		switch {
		case err != nil:
			return "", err
		case holder == known:
			d.keep(ctx, known)
			return holder, nil
		}
	}
	kept, err := d.kept(ctx)
	if err != nil || kept == known {
		return holder, err
	}
	d.mu.Lock()
	d.id = kept
	d.mu.Unlock()
	return d.take(ctx, kept)
}

// kept returns the deployment's ID as asynq's Redis has it, which gets one if it has none:
// before the throttle is taken, so that others of this deployment come with the same.
func (d *deployment) kept(ctx context.Context) (id string, err error) {
	if err := d.ours.SetNX(ctx, deploymentKey, rand.Text(), 0).Err(); err != nil {
		return "", fmt.Errorf("worker: the deployment's ID cannot be kept: %w", err)
	}
	id, err = d.ours.Get(ctx, deploymentKey).Result()
	if err != nil {
		return "", fmt.Errorf("worker: the deployment's ID cannot be read: %w", err)
	}
	return id, nil
}

// keep writes the ID of a deployment that has the throttle to asynq's Redis, which may have
// lost it, and have got another since from a process that has just begun.
func (d *deployment) keep(ctx context.Context, id string) {
	d.keeps.begin(func() error {
		err := d.ours.Set(ctx, deploymentKey, id, 0).Err()
		if err != nil {
			d.log.Debug("worker: the deployment's ID cannot be kept", zap.Error(err))
		}
		return err
	})
}

// take takes the throttle for a deployment, or finds whose it is.
func (d *deployment) take(ctx context.Context, id string) (holder string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("worker: whose the throttle is cannot be read: %w", err)
		}
	}()
	key := "thr:{" + d.throttle + "}:asynq"
	for range 3 { // it may expire in between
		if taken, err := d.theThrottles.SetNX(ctx, key, id, heldFor).Result(); taken || err != nil {
			return id, err
		}
		holder, err = d.theThrottles.Get(ctx, key).Result()
		switch {
		case errors.Is(err, redis.Nil):
			continue
		case err != nil || holder != id:
			return holder, err
		}
		if longer, err := d.theThrottles.PExpire(ctx, key, heldFor).Result(); longer || err != nil {
			return id, err
		}
	}
	return holder, err
}

// run claims the throttle again and again, until the shaper stops.
func (d *deployment) run(s *Shaper) {
	if d == nil {
		return
	}
	ctx, cancel := s.untilStopped()
	defer cancel()
	time.AfterFunc(claimKnown, d.waitNoMore)
	for !s.isStopped() {
		err := d.claim(ctx)
		var others *DeploymentError
		switch {
		case err == nil || s.isStopped():
		case errors.As(err, &others) && d.complaint.due(10*time.Second):
			d.log.Error("worker: the throttle belongs to another asynq deployment, tasks wait", zap.Error(err))
		case !errors.As(err, &others) && d.warning.due(time.Minute):
			d.log.Warn("worker: it is not known whether the throttle belongs to another asynq deployment", zap.Error(err))
		}
		d.mu.Lock()
		again := d.again
		d.mu.Unlock()
		if s.pause(time.Until(again)) != nil {
			return
		}
	}
}

// others returns a *DeploymentError if the throttle is known to be another deployment's.
// It waits a moment for the first claim.
func (d *deployment) others(ctx context.Context) error {
	if d == nil {
		return nil
	}
	select {
	case <-d.known:
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusal()
}

// claimed is others, for a caller in whose process no goroutine claims. It waits for a claim
// that is due, for claimKnown at most.
func (d *deployment) claimed(ctx context.Context) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	due := !time.Now().Before(d.again)
	if due {
		d.again = time.Now().Add(claimedAgain)
	}
	d.mu.Unlock()
	if due {
		ctx, cancel := context.WithTimeout(ctx, claimKnown)
		defer cancel()
		if err := d.claim(ctx); err != nil {
			d.log.Debug("worker: the throttle could not be claimed for this asynq deployment", zap.Error(err))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusal()
}

// refusal is a *DeploymentError or nil. The caller holds mu.
func (d *deployment) refusal() error {
	if d.holder == "" {
		return nil
	}
	return &DeploymentError{Throttle: d.throttle, Deployment: d.id, Holder: d.holder}
}

// flight makes a call in a goroutine of its own, one at a time.
type flight struct {
	mu  sync.Mutex
	now *call // nil: none is under way
}

// call is one call of a flight. Its err is written before done is closed.
type call struct {
	done chan struct{}
	err  error
}

// begin makes a call, unless one is under way, and returns the one that is.
func (f *flight) begin(do func() error) *call {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil {
		return f.now
	}
	c := &call{done: make(chan struct{})}
	f.now = c
	go func() {
		c.err = do()
		f.mu.Lock()
		f.now = nil
		f.mu.Unlock()
		close(c.done)
	}()
	return c
}
