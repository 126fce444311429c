package worker

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// JobFunc returns the job of a task: its Weight and its Keys, its Costs if they differ
// from scope to scope, and a Deadline if it has one. The Shaper or the Client fills in ID,
// Nonce, MaxWait, Plan and Bounded. A Shaper calls the JobFunc each time that asynq delivers a task,
// also after a put-back, so keep weight and keys where they are cheap to read, such as the task's
// headers. An error fails the task as if its handler had returned it: asynq tries again, and a
// retry is spent. A panic fails the task in the same way, and so does a job that the throttle
// refuses as invalid: the function may be mended before the next attempt. To end a task at once,
// return an error that wraps asynq.SkipRetry. A Client returns these errors, and does not enqueue
// the task.
type JobFunc func(ctx context.Context, task *asynq.Task) (throttle.Job, error)

// decider is the part of a throttle that a Shaper uses.
type decider interface {
	Reserve(ctx context.Context, job throttle.Job) (throttle.Reservation, error)
	Cancel(ctx context.Context, job throttle.Job) (bool, error)
	Refund(ctx context.Context, granted throttle.Reservation) (bool, error)
	Done(ctx context.Context, granted ...throttle.Reservation) ([]bool, error)
	Renew(ctx context.Context, granted ...throttle.Reservation) ([]bool, error)
	Settle(ctx context.Context, granted throttle.Reservation, actual int64) (bool, error)
	SettleCosts(ctx context.Context, granted throttle.Reservation, actual map[string]int64) (bool, error)
	Report(ctx context.Context, scope, key string, r throttle.Report) (throttle.Adaptation, error)
}

// looker is the part of the throttle's inspector that a Shaper uses.
type looker interface {
	Usage(ctx context.Context, scope, key string) (inspect.Usage, error)
	Check(ctx context.Context) ([]inspect.Finding, error)
	Jobs(ctx context.Context, lane, from string) (jobs []throttle.Reservation, next string, err error)
	Pause(ctx context.Context, scope, key string, until time.Time, options ...inspect.SetOption) (time.Time, error)
}

// driver is the part of the throttle's driver that a Shaper uses.
type driver interface {
	Pull(ctx context.Context, ended ...throttle.Reservation) (throttle.Pulled, error)
	Due() time.Time
	Leave(ctx context.Context, ids []string) ([]bool, error)
	Release(ctx context.Context, granted throttle.Reservation) (bool, error)
	Started(granted throttle.Reservation, answered time.Time)
	End(ctx context.Context) error
}

// Shaper shapes the tasks of one process' asynq servers under one throttle.
// Wrap it around handlers and let it Configure the servers. It is safe for use by
// many goroutines. From the first Configure or Wrap on it checks the throttle's Redis, logs
// the findings, and pulls the throttle's line whenever a pull is due. Stop ends its goroutines.
type Shaper struct {
	throttle  decider
	looks     looker
	driver    driver
	name      string            // of the throttle
	observer  throttle.Observer // of the throttle; may be nil
	handsOver bool              // the throttle has running limits: a place may become free at any moment
	inspector *inspector
	// deployment is that of asynq's Redis; nil if the throttle has no owner (newDeployment).
	deployment *deployment
	job        JobFunc
	options    Options
	log        *zap.Logger
	waker      *waker
	puller     *puller
	runner     *runner
	blocked    *patience
	outage     outage
	use        use
	twice      sync.Once // logs that Wrap is around a handler twice
	// untranslated logs that asynq.GetMaxRetry counts spare retries.
	untranslated sync.Once
	firstTask    sync.Once // when asynq begins the first task of a server with our Config
	wrapped      atomic.Bool
	stats        counters
	stopped      chan struct{}
	stopOnce     sync.Once
	ended        chan struct{} // closed when the goroutines have ended
}

// New returns a Shaper that decides by th. The client is the one the asynq
// servers use, or another of the same Redis and database: tasks are woken through it. The
// error is a *throttle.OptionError. New does not talk to Redis; Own does.
func New(th *throttle.Throttle, client redis.UniversalClient, job JobFunc, opts *Options) (*Shaper, error) {
	options, err := checked(th, client, job, opts)
	if err != nil {
		return nil, err
	}
	in, log := th.Inside(seam.Key{}), options.Logger.With(zap.String("throttle", th.Name()))
	s := &Shaper{
		throttle:  th,
		looks:     inspect.New(th),
		driver:    th.Driver(),
		name:      th.Name(),
		observer:  in.Options().Observer,
		handsOver: in.HandsOver(),
		inspector: newInspector(client, log),
		job:       options.estimated(job),
		options:   options,
		log:       log,
		blocked:   newPatience(),
		stopped:   make(chan struct{}),
		ended:     make(chan struct{}),
	}
	s.deployment = newDeployment(s.name, in.Client(), client, log)
	s.waker = newWaker(s)
	s.puller = newPuller(s)
	s.runner = newRunner(s)
	return s, nil
}

// Name returns the name of the shaper's throttle.
func (s *Shaper) Name() string { return s.name }

// isNil reports whether a client is nil, or a nil pointer of a client's type.
func isNil(client redis.UniversalClient) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Stop ends the waiting inside handlers: a task that waits for its start goes
// back to asynq and keeps its slot, so that a shutdown is not held up. Call it
// before the server's Shutdown. This process wakes no more tasks; asynq brings them
// back at its own retry time. Only a task without a retry left waits on,
// since going back would archive it: asynq itself takes it back when the server's
// ShutdownTimeout is over. Stop publishes that the process ends. It waits for the shaper's goroutines, and
// for the places of tasks that have ended to be given back, for a second at most: a goroutine that waits
// for Redis ends later, when the client gives the call up or is closed.
// Stop may be called more than once.
func (s *Shaper) Stop() {
	s.stopOnce.Do(func() {
		close(s.stopped)
		s.waker.end()
		s.puller.end()
		s.runner.stop()
		go func() {
			s.waker.done.Wait()
			s.puller.done.Wait()
			s.puller.prospects.done.Wait()
			s.puller.giving.wait()
			s.publishEnd()
			close(s.ended)
		}()
	})
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
	}
}

// publishEnd publishes that this process has ended, so that nobody compares its configuration with that of its
// successors. If Redis does not answer, the process counts as alive for up to 25 minutes.
func (s *Shaper) publishEnd() {
	if err := s.driver.End(context.Background()); err != nil {
		s.log.Debug("worker: the end of the process could not be published", zap.Error(err))
	}
}

// stopWithin bounds Stop, to leave a program most of the seconds that it has to end.
const stopWithin = time.Second

// Stats counts what a Shaper did since it was made.
type Stats struct {
	Granted   int64 // starts of handlers, Unchecked included
	Unchecked int64 // of these, granted without Redis (FallbackOpen, FallbackLocal)
	PutBack   int64 // put-backs: a task counts each time
	Pulled    int64 // jobs in line that this process' pulls have booked, and planned jobs near their slots
	Woken     int64 // tasks moved to pending for their slot
	Ended     int64 // tasks that were ended since they can never start; once more each time that Options.Expired fails
	Expired   int64 // of these, tasks that could not start by their deadline
	Lost      int64 // tasks that lost their places while they ran, or were about to
}

type counters struct{ granted, unchecked, putBack, pulled, woken, ended, expired, lost atomic.Int64 }

// Stats returns the counts so far.
func (s *Shaper) Stats() Stats {
	return Stats{
		Granted:   s.stats.granted.Load(),
		Unchecked: s.stats.unchecked.Load(),
		PutBack:   s.stats.putBack.Load(),
		Pulled:    s.stats.pulled.Load(),
		Woken:     s.stats.woken.Load(),
		Ended:     s.stats.ended.Load(),
		Expired:   s.stats.expired.Load(),
		Lost:      s.stats.lost.Load(),
	}
}

func (s *Shaper) isStopped() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

var errStopped = errors.New("worker: stopped")

// untilStopped is a context that ends when the shaper stops.
func (s *Shaper) untilStopped() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-s.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// pause sleeps unless the shaper is stopped.
func (s *Shaper) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.stopped:
		return errStopped
	}
}
