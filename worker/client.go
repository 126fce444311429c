package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// planner is the part of a throttle that a Client uses.
type planner interface {
	Reserve(ctx context.Context, job throttle.Job) (throttle.Reservation, error)
	ReserveAll(ctx context.Context, jobs []throttle.Job) []throttle.Answer
	Cancel(ctx context.Context, job throttle.Job) (bool, error)
}

// foreteller is the part of the throttle's inspector that a Client uses.
type foreteller interface {
	Expect(ctx context.Context, answers []throttle.Reservation) (inspect.Forecast, error)
	Explain(ctx context.Context, job throttle.Job) (inspect.Explanation, error)
}

// Client plans tasks when they are enqueued: it reserves first, and enqueues each task for
// its slot. A task that waits in line has no slot yet: it is enqueued for a time well after its
// expected start, in case no process wakes it. A planned task that comes at its slot has room, so
// waiting normally costs it neither a worker nor a put-back. The workers' shapers wake it for its
// slot; they need the same throttle and JobFunc. A Client is safe for use by many goroutines and needs no closing.
type Client struct {
	throttle  planner
	looks     foreteller
	client    *asynq.Client
	inspector *inspector
	// deployment is that of asynq's Redis; nil if the throttle has no owner (newDeployment).
	deployment *deployment
	job        JobFunc
	options    Options
	log        *zap.Logger
}

// NewClient returns a Client that plans by th and enqueues through client, the Redis of
// the asynq servers. The JobFunc is called with a context that names no task. The error
// is a *throttle.OptionError.
func NewClient(th *throttle.Throttle, client redis.UniversalClient, job JobFunc, opts *Options) (*Client, error) {
	options, err := checked(th, client, job, opts)
	if err != nil {
		return nil, err
	}
	log := options.Logger.With(zap.String("throttle", th.Name()))
	return &Client{
		deployment: newDeployment(th.Name(), th.Inside(seam.Key{}).Client(), client, log),
		throttle:   th,
		looks:      inspect.New(th),
		client:     asynq.NewClientFromRedisClient(client),
		inspector:  newInspector(client, log),
		job:        options.estimated(job),
		options:    options,
		log:        log,
	}, nil
}

// Planned is what became of one task.
type Planned struct {
	// Info is asynq's answer; nil if the task is not enqueued.
	Info *asynq.TaskInfo
	// Reservation is the task's booking, or says that it waits in line. If Err is nil, the zero
	// Reservation means that the task is not planned and reserves when it comes: the user gave it a
	// ProcessAt, ProcessIn or Group, it weighs more than a limit that was set at run time, Redis
	// could not decide, or another deployment of asynq owns the throttle, see
	// DeploymentError.
	Reservation throttle.Reservation
	// Start is the task's slot, or when a task in line is expected to start, on Redis' clock;
	// zero if the task is not planned.
	Start time.Time
	// Err is why the task is not enqueued: asynq's error, or an error of Reserve that waiting
	// does not cure. The task's reservation is given back, unless a task with its ID is in asynq.
	Err error
}

// Enqueue plans one task and enqueues it. All options of asynq pass through, and so do the spare
// retries of NewTask. A task for which the user gave a ProcessAt keeps that time, and is not
// planned. A planned task gets the header Throttle-Planned, by which the workers know
// it. The reservation ignores asynq's option Deadline: give the Job a Deadline. For a task in line, Start is
// Reserve's estimate. Enqueue blocks for two round trips, and now and then for 250 ms at most, to ask
// which deployment owns the throttle. The error is Planned.Err.
//
// A task that would make a line longer than throttle.Scope.MaxWaiting is refused with a
// *throttle.LineFullError, and asynq does not get it. The bound is exact, however many processes
// enqueue at once. A task that is not planned (Planned.Reservation says which) does not count, and is not
// refused: while Redis cannot decide, lines have no bound. A task that is enqueued again while it
// waits is not refused either: asynq's own error reports it.
func (c *Client) Enqueue(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (Planned, error) {
	p := c.prepare(ctx, task, opts)
	if p.asked {
		r, err := c.throttle.Reserve(ctx, p.job)
		p.take(throttle.Answer{Reservation: r, Err: err})
	}
	c.enqueue(ctx, p)
	return p.Planned, p.Err
}

// Plan is what became of many tasks.
type Plan struct {
	// Tasks has an entry for each task, in the order in which the tasks were given.
	Tasks []Planned
	// Last is when the last planned task is expected to start, on Redis' clock; zero if no task is planned.
	Last time.Time
	// Guessed is true without a forecast: then the starts of tasks in line are Reserve's
	// estimates.
	Guessed bool
}

// leastForecast is how long a forecast may take, however few tasks were planned.
const leastForecast = 100 * time.Millisecond

// How many tasks EnqueueAll plans before it enqueues them, and how many it enqueues at
// once. A task must be in asynq soon after it was planned, so that the workers can wake it.
// That matters most for the first tasks, which may start at once.
const (
	plannedFirst   = 4
	plannedAtOnce  = 64 // one call of the throttle
	enqueuedAtOnce = 16
)

// EnqueueAll is Enqueue for many tasks, in their order, with few round trips for the
// planning. At the end it asks for a forecast, which gives each task in line the start
// that is expected if nothing else comes (inspect.Inspector.Expect). A forecast reads all
// waiting jobs. EnqueueAll gives it up after a tenth of a second, or after the time that
// planning and enqueueing took if that is longer; then the starts are Reserve's estimates.
// So the time of EnqueueAll grows with its tasks, not with the backlog. The error joins the
// errors of the tasks; tasks without an error are enqueued all the same. If the context
// ends, the remaining tasks are not enqueued.
//
// Where a line has a bound, each task is decided by itself, in the order of the tasks: those for
// which the line has room are enqueued, and each other one has a *throttle.LineFullError as its
// Planned.Err, even if a later task is enqueued, which is lighter or of another tenant. Enqueue
// the refused tasks again later, in their order and before newer tasks.
func (c *Client) EnqueueAll(ctx context.Context, tasks []*asynq.Task, opts ...asynq.Option) (Plan, error) {
	began := time.Now()
	plans := c.planAndEnqueue(ctx, tasks, opts)
	all := Plan{Tasks: make([]Planned, len(plans))}
	all.Guessed = !c.expect(ctx, plans, max(time.Since(began), leastForecast))
	var failures []error
	for i, p := range plans {
		all.Tasks[i] = p.Planned
		if p.Start.After(all.Last) {
			all.Last = p.Start
		}
		if p.Err != nil {
			failures = append(failures, p.Err)
		}
	}
	return all, errors.Join(failures...)
}

// planAndEnqueue enqueues planned tasks while it plans the next ones.
func (c *Client) planAndEnqueue(ctx context.Context, tasks []*asynq.Task, opts []asynq.Option) []*plan {
	plans := make([]*plan, 0, len(tasks))
	var before sync.WaitGroup
	defer before.Wait()
	for n := plannedFirst; len(plans) < len(tasks); n = min(2*n, plannedAtOnce) {
		some := c.planSome(ctx, tasks[len(plans):min(len(plans)+n, len(tasks))], opts)
		before.Wait()
		before.Go(func() { c.enqueueSome(ctx, some) })
		plans = append(plans, some...)
	}
	return plans
}

// plan is a task that is being planned and enqueued.
type plan struct {
	Planned
	task    *asynq.Task
	options []asynq.Option
	own     []asynq.Option // those that the task was made with
	known   taskOptions
	job     throttle.Job
	asked   bool // the throttle is asked
	unsure  bool // the throttle's answer was lost: it may have reserved
}

// prepare reads a task's options and its job.
func (c *Client) prepare(ctx context.Context, task *asynq.Task, opts []asynq.Option) *plan {
	p := &plan{task: task, options: opts}
	if task == nil {
		return p // asynq refuses it
	}
	own, known := ownOptions(task)
	p.own, p.known = own, optionsOf(own, opts)
	if at := p.known.expires; !at.IsZero() {
		p.task = marked(task, own, expiresHeader, expiresAt(at))
	}
	if !known || p.known.scheduled || c.refused(ctx) {
		return p
	}
	p.options = append(append([]asynq.Option(nil), opts...), asynq.TaskID(p.known.id))
	p.job, p.Err = jobOf(ctx, c.job, p.task)
	p.job.ID, p.job.Plan, p.job.MaxWait = attempt{queue: p.known.queue, id: p.known.id}.jobID(), true, 0
	p.job.Bounded = true // asynq does not have the task yet
	p.asked = p.Err == nil
	return p
}

// refused reports whether another deployment owns the throttle, and logs it.
func (c *Client) refused(ctx context.Context) bool {
	err := c.deployment.askIfDue(ctx)
	if err != nil && c.deployment.complaint.due(10*time.Second) {
		c.log.Error("worker: another asynq deployment owns the throttle, tasks are not planned", zap.Error(err))
	}
	return err != nil
}

// take notes the throttle's answer.
func (p *plan) take(answer throttle.Answer) {
	switch err := answer.Err; {
	case err == nil:
		p.Reservation, p.Start = answer.Reservation, answer.Reservation.Start
	case isBlocked(err), errors.Is(err, throttle.ErrUnavailable):
		// The task reserves when it comes.
		var unavailable *throttle.UnavailableError
		if p.unsure = errors.As(err, &unavailable); p.unsure {
			p.job.Nonce = unavailable.Nonce
		}
	default:
		p.Err = err
	}
}

func (c *Client) planSome(ctx context.Context, tasks []*asynq.Task, opts []asynq.Option) []*plan {
	plans := make([]*plan, len(tasks))
	var jobs []throttle.Job
	var asked []*plan
	for i, task := range tasks {
		plans[i] = c.prepare(ctx, task, opts)
		if plans[i].asked {
			jobs, asked = append(jobs, plans[i].job), append(asked, plans[i])
		}
	}
	for i, answer := range c.throttle.ReserveAll(ctx, jobs) {
		asked[i].take(answer)
	}
	return plans
}

func (c *Client) enqueueSome(ctx context.Context, plans []*plan) {
	next := make(chan *plan)
	var done sync.WaitGroup
	for range min(enqueuedAtOnce, len(plans)) {
		done.Go(func() {
			for p := range next {
				c.enqueue(ctx, p)
			}
		})
	}
	seen := make(map[*asynq.Task]bool, len(plans))
	var again []*plan
	for _, p := range plans {
		if seen[p.task] {
			again = append(again, p)
			continue
		}
		seen[p.task] = true
		next <- p
	}
	close(next)
	done.Wait()
	for _, p := range again {
		c.enqueue(ctx, p) // asynq appends to a task's own options: not at the same time
	}
}

// enqueue hands a task to asynq, for its slot.
func (c *Client) enqueue(ctx context.Context, p *plan) {
	if p.Err != nil {
		return
	}
	task := p.task
	if delay := c.delay(p); delay > 0 {
		at := time.Now().Add(delay)
		task, p.options = marked(task, p.own, plannedHeader, plannedFor(at)), append(p.options, asynq.ProcessAt(at))
	}
	if p.Info, p.Err = c.client.EnqueueContext(ctx, task, p.options...); p.Err != nil {
		p.Start = time.Time{}
		c.giveBack(ctx, p)
	}
}

// delay returns how long asynq waits before it brings a planned task that no process wakes. The
// task comes at its slot, rounded up to asynq's whole seconds, or at once if the middleware can
// sleep until the slot. A task in line comes later, but before its Deadline.
func (c *Client) delay(p *plan) time.Duration {
	switch r := p.Reservation; {
	case r.Outcome == throttle.Waiting && !p.known.deadline.IsZero():
		return fallbackDelay(min(restFor(r), untilNear(time.Until(p.known.deadline))))
	case r.Outcome == throttle.Waiting, r.Outcome == throttle.Booked && r.Delay() > c.options.MaxWait:
		return fallbackDelay(restFor(r))
	}
	return 0
}

// giveBack cancels the reservation of a task that was not enqueued. If a task with that ID
// exists, the reservation belongs to it: asynq's answer may have been lost.
func (c *Client) giveBack(ctx context.Context, p *plan) {
	if p.Reservation.Outcome == 0 && !p.unsure {
		return
	}
	info, err := c.inspector.GetTaskInfo(p.known.queue, p.known.id)
	switch fateOf(0, info, err) {
	case resting, underway:
		return
	case unknown:
		if p.known.named {
			return // if no task comes, the reservation ends with its grace
		}
	case gone:
	}
	if _, err := c.throttle.Cancel(context.WithoutCancel(ctx), p.job); err != nil {
		c.log.Debug("worker: an unused reservation stays until its grace is over", zap.Error(err))
	}
}

// expect asks for a forecast, and fills in when the tasks in line are expected to start. It
// returns false if no forecast comes in time. Without tasks in line it asks for none.
func (c *Client) expect(ctx context.Context, plans []*plan, within time.Duration) bool {
	var waiting []throttle.Reservation
	var places []*plan
	for _, p := range plans {
		if p.Err == nil && p.Reservation.Outcome == throttle.Waiting {
			waiting, places = append(waiting, p.Reservation), append(places, p)
		}
	}
	if len(waiting) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	forecast, err := c.looks.Expect(ctx, waiting)
	if err != nil {
		c.log.Debug("worker: no forecast for planned tasks, their starts are estimates", zap.Error(err))
		return false
	}
	for i, p := range places {
		p.Start = forecast.Starts[i]
	}
	return true
}
