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

	"github.com/asynq-throttle/asynq-throttle/internal/owner"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A deployment of asynq is all servers and clients of one Redis and database. A job's ID
// names a task by its queue and its ID, and both mean something in one deployment only: a
// process of another deployment would pull the job, find no such task and give its room
// away. So one deployment at a time owns a throttle. A deployment has an ID, kept under a
// key of asynq's Redis. The throttle's Redis keeps the ID of the owner, and a process of the
// owner renews it.

const (
	// ownedFor is how long a throttle stays with an owner that has ended.
	ownedFor = time.Minute
	// renewEvery is how often the owner renews its ownership.
	renewEvery = 15 * time.Second
	// askEvery is how often a deployment asks again after a refusal or no answer.
	askEvery = 2 * time.Second
	// knownWithin is how long tasks wait for the first answer after their server has begun, and
	// how long a Client that asks waits for each answer: while they wait, they break no limit of
	// another deployment.
	knownWithin = 250 * time.Millisecond
)

// DeploymentError says that another deployment of asynq, with another Redis or database,
// owns the throttle. Either name the throttle of one deployment differently, or stop one
// deployment: a minute later the other can own the throttle.
type DeploymentError struct {
	Throttle   string // its name
	Deployment string // the ID of this deployment
	Owner      string // the ID of the deployment that owns it
}

func (e *DeploymentError) Error() string {
	return fmt.Sprintf("worker: the asynq deployment %s owns the throttle %s, this is %s", e.Owner,
		e.Throttle, e.Deployment)
}

// Is reports whether target is throttle.ErrUnavailable: nothing is decided for this deployment.
func (e *DeploymentError) Is(target error) bool { return target == throttle.ErrUnavailable }

// store is the part of both Redis clients that is used here.
type store interface {
	Get(ctx context.Context, key string) *redis.StringCmd
	Set(ctx context.Context, key string, value any, expiration time.Duration) *redis.StatusCmd
	SetNX(ctx context.Context, key string, value any, expiration time.Duration) *redis.BoolCmd
	PExpire(ctx context.Context, key string, expiration time.Duration) *redis.BoolCmd
}

// deployment takes a throttle for this deployment of asynq, or knows which other one owns it.
type deployment struct {
	throttle             string // its name
	asynqs, theThrottles store  // asynq's Redis and the throttle's
	log                  *zap.Logger
	complaint, warning   seldom
	asks, keeps          flight        // one question and one write of the ID are under way at a time
	known                chan struct{} // closed with the first answer, or knownWithin after its question
	knowing              sync.Once

	mu    sync.Mutex
	id    string    // empty until it is known
	owner string    // another deployment; empty if none is known to own the throttle
	again time.Time // when the next question is due
}

// newDeployment returns nil if the throttle's client does not take single commands: then
// the throttle has no owner.
func newDeployment(throttle string, client any, asynqs store, log *zap.Logger) *deployment {
	theThrottles, can := client.(store)
	if !can {
		return nil
	}
	return &deployment{throttle: throttle, asynqs: asynqs, theThrottles: theThrottles, log: log,
		known: make(chan struct{})}
}

// Own takes the throttle for the deployment of asynq that the shaper's client belongs
// to. A Shaper does so by itself, from the first Configure or Wrap on: while another deployment owns
// the throttle, the Shaper puts tasks back, leaves the line alone, and logs an error. A
// program that should end instead calls Own before it starts its server. The error is
// a *DeploymentError, or says which Redis could not be asked. Own blocks for a few
// round trips, as long as the clients allow.
func (s *Shaper) Own(ctx context.Context) error { return s.deployment.own(ctx) }

// own finds out which deployment owns the throttle, and takes a throttle that has no owner.
// It waits for a question that is under way, until the context ends.
func (d *deployment) own(ctx context.Context) error {
	if d == nil {
		return nil
	}
	asked := d.asks.begin(func() error { return d.decide(context.WithoutCancel(ctx)) })
	select {
	case <-asked.done:
		return asked.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decide asks once, and notes the answer.
func (d *deployment) decide(ctx context.Context) error {
	current, err := d.ask(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.again = time.Now().Add(askEvery)
	if err == nil {
		d.owner = ""
		if current == d.id {
			d.again = time.Now().Add(renewEvery)
		} else {
			d.owner = current
			err = d.refusal()
		}
	}
	d.waitNoMore()
	return err
}

// waitNoMore releases the tasks that wait for the first answer.
func (d *deployment) waitNoMore() {
	if d != nil {
		d.knowing.Do(func() { close(d.known) })
	}
}

// ask returns the deployment that owns the throttle. The owner needs the throttle's Redis
// only: asynq's may be away for longer than ownership lasts.
func (d *deployment) ask(ctx context.Context) (current string, err error) {
	d.mu.Lock()
	known := d.id
	d.mu.Unlock()
	if known != "" {
		current, err = d.take(ctx, known)
		switch {
		case err != nil:
			return "", err
		case current == known:
			d.keep(ctx, known)
			return current, nil
		}
	}
	kept, err := d.kept(ctx)
	switch {
	case err != nil && current != "": // another deployment owns the throttle, whatever asynq's Redis keeps
		return current, nil
	case err != nil || kept == known:
		return current, err
	}
	d.mu.Lock()
	d.id = kept
	d.mu.Unlock()
	return d.take(ctx, kept)
}

// kept returns the deployment's ID from asynq's Redis, and writes one there if it has none. The ID
// is written before the throttle is taken, so that all processes of the deployment use the same ID.
func (d *deployment) kept(ctx context.Context) (id string, err error) {
	if err := d.asynqs.SetNX(ctx, owner.DeploymentKey, rand.Text(), 0).Err(); err != nil {
		return "", fmt.Errorf("worker: the deployment's ID cannot be kept: %w", err)
	}
	id, err = d.asynqs.Get(ctx, owner.DeploymentKey).Result()
	if err != nil {
		return "", fmt.Errorf("worker: the deployment's ID cannot be read: %w", err)
	}
	return id, nil
}

// keep writes the ID of the owner to asynq's Redis, which may have lost it. A process that has
// just begun may have written another ID there since.
func (d *deployment) keep(ctx context.Context, id string) {
	d.keeps.begin(func() error {
		err := d.asynqs.Set(ctx, owner.DeploymentKey, id, 0).Err()
		if err != nil {
			d.log.Debug("worker: the deployment's ID cannot be kept", zap.Error(err))
		}
		return err
	})
}

// take takes the throttle for a deployment, or returns the one that owns it.
func (d *deployment) take(ctx context.Context, id string) (current string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("worker: the owner of the throttle cannot be read: %w", err)
		}
	}()
	key := owner.Key(d.throttle)
	for range 3 { // the key may expire in between
		if taken, err := d.theThrottles.SetNX(ctx, key, id, ownedFor).Result(); taken || err != nil {
			return id, err
		}
		current, err = d.theThrottles.Get(ctx, key).Result()
		switch {
		case errors.Is(err, redis.Nil):
			continue
		case err != nil || current != id:
			return current, err
		}
		if longer, err := d.theThrottles.PExpire(ctx, key, ownedFor).Result(); longer || err != nil {
			return id, err
		}
	}
	return current, err
}

// run renews the ownership, or asks for it, until the shaper stops.
func (d *deployment) run(s *Shaper) {
	if d == nil {
		return
	}
	ctx, cancel := s.untilStopped()
	defer cancel()
	time.AfterFunc(knownWithin, d.waitNoMore)
	for !s.isStopped() {
		err := d.own(ctx)
		var others *DeploymentError
		switch {
		case err == nil || s.isStopped():
		case errors.As(err, &others) && d.complaint.due(10*time.Second):
			d.log.Error("worker: another asynq deployment owns the throttle, tasks wait", zap.Error(err))
		case !errors.As(err, &others) && d.warning.due(time.Minute):
			d.log.Warn("worker: it is not known whether another asynq deployment owns the throttle", zap.Error(err))
		}
		d.mu.Lock()
		again := d.again
		d.mu.Unlock()
		if s.pause(time.Until(again)) != nil {
			return
		}
	}
}

// others returns a *DeploymentError if another deployment is known to own the throttle.
// It waits a moment for the first answer.
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

// askIfDue is others for a Client: in its process there may be no shaper whose run asks. It asks
// if a question is due, and waits for knownWithin at most; a call meanwhile goes by the last answer, and waits for the
// first one.
func (d *deployment) askIfDue(ctx context.Context) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	due := !time.Now().Before(d.again)
	if due {
		d.again = time.Now().Add(askEvery)
	}
	d.mu.Unlock()
	if due {
		time.AfterFunc(knownWithin, d.waitNoMore)
		within, cancel := context.WithTimeout(ctx, knownWithin)
		defer cancel()
		if err := d.own(within); err != nil {
			d.log.Debug("worker: this asynq deployment does not own the throttle", zap.Error(err))
		}
	}
	return d.others(ctx)
}

// refusal is a *DeploymentError or nil. The caller holds mu.
func (d *deployment) refusal() error {
	if d.owner == "" {
		return nil
	}
	return &DeploymentError{Throttle: d.throttle, Deployment: d.id, Owner: d.owner}
}

// flight makes calls one at a time, each in a goroutine of its own.
type flight struct {
	mu  sync.Mutex
	now *call // nil: none is under way
}

// call is one call of a flight. Its err is written before done is closed.
type call struct {
	done chan struct{}
	err  error
}

// begin starts a call unless one is under way, and returns the call that is under way.
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
