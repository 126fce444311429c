package reliability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

const (
	soakLease    = 10 * time.Second
	soakCooldown = 50 * time.Millisecond
	soakAdvance  = 200 * time.Millisecond
	busyPages    = 50 // tasks of one domain, before the next domain comes
	burstOfQuick = 60 // tasks that come within a second, where there are advances
)

// workload is one throttle of a soak, with its tasks, which have a queue of their own.
type workload struct {
	name    string // the throttle's name
	scopes  []throttle.Scope
	options throttle.Options
	job     func(n int) throttle.Job // returns the job of the nth task
	expires func(n int) time.Duration
}

// mail returns the workload with all kinds of limits. It has no advances: they need a throttle without running limits.
// Its quotas begin anew at the next full hour and the next half hour, and its ramp takes its next step at the next full
// hour.
func mail(name string, begins time.Time, length time.Duration) workload {
	begins = begins.UTC()
	hour := (begins.Hour() + 1) % 24
	india := begins.Add(time.Hour).Truncate(time.Hour).Add(-30 * time.Minute)
	if india.Before(begins) {
		india = india.Add(time.Hour)
	}
	anew := india.Add(5*time.Hour + 30*time.Minute).Hour() // by the clock of India, half an hour off that of UTC
	optional := func(name string, limits ...throttle.Limit) throttle.Scope {
		return throttle.Scope{Name: name, Optional: true, Limits: limits}
	}
	domain := optional("domain", throttle.Limit{Units: 3, Running: true, Lease: soakLease})
	domain.Cooldown = soakCooldown
	provider := optional("provider", throttle.Per(10, 2*time.Second))
	provider.Floor, provider.Margin = 0.1, 20*time.Millisecond
	atHalf := throttle.Calendar{Unit: throttle.Day, Hours: anew, Zone: "Asia/Kolkata"}
	daily := throttle.Calendar{Unit: throttle.Day, Hours: hour, Zone: "UTC"}
	period, _, _ := strings.Cut(daily.String(), "@")
	yesterday := begins.AddDate(0, 0, -1).Format(time.DateOnly)
	ramp := throttle.Ramp(fmt.Sprintf("100 300 900/%s from %s @UTC", period, yesterday))
	return workload{
		name: name,
		scopes: []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(40, time.Second), throttle.PerMinute(2000)}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(8, 2*time.Second), throttle.PerMinute(200)},
				MaxWaiting: throttle.Length{Jobs: 15}},
			optional("list", throttle.Per(100, 10*time.Second)), domain, provider,
			optional("plan",
				throttle.Limit{Units: 400, Calendar: daily},
				throttle.Limit{Units: 500, Calendar: atHalf}),
			optional("warm", ramp), optional("desk", throttle.OpenHours(deskHours(begins, length))),
		},
		options: throttle.Options{SettleWithin: time.Minute},
		job:     mailJob,
		expires: func(n int) time.Duration {
			if scopeOf(n) == "plan" || scopeOf(n) == "warm" {
				return 10 * time.Second // else it might wait for a day
			}
			return 0
		},
	}
}

// deskHours returns hours that are open four fifths of the time, from the beginning of a soak until well after its end.
func deskHours(begins time.Time, length time.Duration) string {
	const most = 8 // ranges a day: a text has 64 ranges in a week at most
	each := max(5*time.Minute, ((length+15*time.Minute)/most).Truncate(time.Minute)+time.Minute)
	var ranges []string
	for from := begins.Truncate(time.Minute); from.Before(begins.Add(length + 15*time.Minute)); from = from.Add(each) {
		ranges = append(ranges, from.Format("15:04")+"-"+from.Add(each-each/5).Format("15:04"))
	}
	return strings.Join(ranges, ", ") + " @UTC"
}

// scopeOf returns the scope that the nth task of mail has beside its tenant; empty for none.
func scopeOf(n int) string {
	return [...]string{"", "list", "domain", "provider", "plan", "", "desk", "warm"}[n%8]
}

func mailJob(n int) throttle.Job {
	tenant := min(n%7, 4) // the last tenant has three times as many tasks
	job := throttle.Job{Weight: 1, Priority: n % 3, Keys: map[string]string{"tenant": fmt.Sprintf("t%d", tenant)}}
	if n%10 == 0 {
		job.Weight = 3
	}
	switch scope := scopeOf(n); scope {
	case "":
	case "domain":
		job.Keys[scope], job.Costs = fmt.Sprintf("d%d", n/8/busyPages), map[string]int64{scope: 1}
	case "list":
		job.Keys[scope], job.Costs = fmt.Sprintf("l%d", n/8%2), map[string]int64{scope: 10}
	default:
		job.Keys[scope] = fmt.Sprintf("%.1s%d", scope, n/8%2)
	}
	return job
}

// quick returns the workload of advances: many light jobs of one lane, under long windows.
func quick(name string) workload {
	return workload{
		name: name,
		scopes: []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(60_000, 10*time.Minute)}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(30_000, 10*time.Minute)}},
		},
		options: throttle.Options{Advance: soakAdvance, SettleWithin: time.Minute},
		job: func(n int) throttle.Job {
			return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": fmt.Sprintf("t%d", n/burstOfQuick%3)}}
		},
	}
}

// clocked returns the workload whose scripts get the time of a clock that steps.
func clocked(name string) workload {
	return workload{
		name: name,
		scopes: []throttle.Scope{
			{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(5, time.Second)}},
			{Name: "tenant", Limits: []throttle.Limit{throttle.Per(3, time.Second)}},
		},
		options: throttle.Options{SettleWithin: time.Minute},
		job: func(n int) throttle.Job {
			return throttle.Job{Weight: 1, Keys: map[string]string{"tenant": fmt.Sprintf("t%d", n%2)}}
		},
	}
}

// note is one line of a soak's record: what was done with a task.
type note struct {
	Did      string // enqueued, refused, unsure, begun, ended or expired
	Throttle string
	Task     string
	Process  string
	Call     int64            // the number of the handler's call, within its process
	Job      throttle.Job     // the job as it was charged
	At       time.Time        // the granted start, on Redis' clock
	Noted    time.Time        // on this machine's clock
	Least    map[string]int64 // by scope, the lowest charge that the job had; without an entry, it was not settled
	Again    bool             // the handler asked that the task comes again
	Settled  string           // how the charge was corrected
	Advanced bool
}

// notebook is the file in which a process notes what it does. It is safe for use by many goroutines, and each line
// outlives its process.
type notebook struct {
	process string
	calls   atomic.Int64 // counts the calls of handlers
	asked   sync.Map     // tasks whose provider has asked to wait: it asks once for each
	mu      sync.Mutex
	file    *os.File
}

func openNotebook(path, process string) (*notebook, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &notebook{process: process, file: file}, err
}

func (b *notebook) add(n note) error {
	n.Process, n.Noted = b.process, time.Now()
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err = b.file.Write(append(text, '\n'))
	return err
}

// soakWorker is the part of a process that runs the tasks of one workload: an asynq server, a shaper and clients.
type soakWorker struct {
	workload
	notes  *notebook
	shaper *worker.Shaper
	server *asynq.Server
	decide *redis.Client
	work   *redis.Client
}

// soakOptions returns the options of a client. A pool keeps the connections that a fault made it open for half an hour.
// With small buffers the heap shows what is kept, and not how many connections there are.
func soakOptions(addr string) *redis.Options {
	return &redis.Options{Addr: addr, ReadBufferSize: 2 << 10, WriteBufferSize: 2 << 10}
}

// startSoakWorker starts a worker. The Redis at the address decide has its throttle, the one at work has its tasks. The
// clock, if it is not nil, gives the scripts their time.
func startSoakWorker(w workload, decide, work string, clock *steppedClock, notes *notebook) (*soakWorker, error) {
	s := &soakWorker{workload: w, notes: notes, decide: redis.NewClient(soakOptions(decide)),
		work: redis.NewClient(soakOptions(work))}
	if clock != nil {
		s.decide.AddHook(clock)
	}
	w.options.Logger = zap.NewNop()
	th, err := throttle.New(w.name, s.decide, w.scopes, &w.options)
	if err != nil {
		return nil, err
	}
	if s.shaper, err = worker.New(th, s.work, jobInHeader, &worker.Options{Expired: s.expired}); err != nil {
		return nil, err
	}
	s.server = asynq.NewServerFromRedisClient(s.work, s.shaper.Configure(asynq.Config{
		Concurrency: 16, LogLevel: asynq.FatalLevel, Queues: map[string]int{w.name: 1},
		TaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return 0 },
	}))
	return s, s.server.Start(s.shaper.Wrap(asynq.HandlerFunc(s.handle)))
}

func (s *soakWorker) stop() {
	s.shaper.Stop()
	s.server.Shutdown()
	_ = s.decide.Close()
	_ = s.work.Close()
}

func jobInHeader(_ context.Context, task *asynq.Task) (job throttle.Job, err error) {
	err = json.Unmarshal([]byte(task.Headers()["job"]), &job)
	return job, err
}

// expired notes a task that could not start by its deadline, and deletes it.
func (s *soakWorker) expired(ctx context.Context, task *asynq.Task, late *throttle.DeadlineError) error {
	id, _ := asynq.GetTaskID(ctx)
	return errors.Join(s.notes.add(note{Did: "expired", Throttle: s.name, Task: id}), worker.Drop(ctx, task, late))
}

// handle runs a task: it notes the start, takes a while, settles, and notes the end.
func (s *soakWorker) handle(ctx context.Context, _ *asynq.Task) error {
	grant, ok := worker.Grant(ctx)
	if !ok {
		return errNoGrant
	}
	id, _ := asynq.GetTaskID(ctx)
	of := note{Did: "begun", Throttle: s.name, Task: id, Call: s.notes.calls.Add(1), Job: grant.Job, At: grant.Start,
		Advanced: grant.Advanced}
	if err := s.notes.add(of); err != nil {
		return err
	}
	took := time.NewTimer(s.takes(of))
	defer took.Stop()
	select {
	case <-took.C:
	case <-ctx.Done():
	}
	of.Did = "ended"
	result := s.end(ctx, &of)
	of.Again = result != nil
	return errors.Join(s.notes.add(of), result)
}

func (s *soakWorker) takes(n note) time.Duration {
	if _, runs := n.Job.Keys["domain"]; runs {
		return time.Duration(200+numberOf(n.Task)%500) * time.Millisecond
	}
	if s.options.Advance > 0 {
		return time.Millisecond
	}
	return time.Duration(numberOf(n.Task)%20) * time.Millisecond
}

// numberOf returns the number of a task.
func numberOf(task string) (n int) {
	_, _ = fmt.Sscanf(task, "%d", &n)
	return n
}

// end settles a task's charge, reports its upstream's answer, and returns the task's result. The task's number decides
// all three. A call that fails because Redis is away has changed nothing, or has changed what the note says.
func (s *soakWorker) end(ctx context.Context, n *note) error {
	retried, _, _ := worker.Retries(ctx)
	if _, follows := n.Job.Keys["provider"]; follows {
		if err := s.answered(ctx, n); err != nil {
			return err
		}
	}
	if s.options.Advance > 0 {
		return nil
	}
	settled := func(how string, units int64) {
		n.Settled, n.Least = how, map[string]int64{}
		for _, scope := range s.scopes {
			if _, own := n.Job.Costs[scope.Name]; !own {
				n.Least[scope.Name] = min(n.Job.Weight, units)
			}
		}
	}
	switch numberOf(n.Task) % 40 {
	case 3, 10, 20:
		settled("for less", n.Job.Weight-1)
		_ = worker.Settle(ctx, n.Job.Weight-1)
	case 7:
		settled("for more", n.Job.Weight+1)
		_ = worker.Settle(ctx, n.Job.Weight+1)
	case 13:
		settled("refunded", 0)
		n.Least["list"], n.Least["domain"] = 0, 0
		_ = worker.Refund(ctx)
	case 17:
		if retried == 0 {
			settled("untouched", 0)
			n.Least["list"], n.Least["domain"] = 0, 0
			return worker.Untouched(errors.New("not connected"))
		}
	case 23:
		if retried == 0 {
			return errors.New("failed")
		}
	case 25:
		settled("for less", n.Job.Costs["list"]/2)
		n.Least = map[string]int64{"list": n.Job.Costs["list"] / 2}
		_ = worker.SettleCosts(ctx, map[string]int64{"list": n.Job.Costs["list"] / 2})
	}
	return nil
}

// answered reports the provider's answer: mostly that it served the request, sometimes that it refused the request, or
// how much of its limit remains. Now and then the provider asks to wait.
func (s *soakWorker) answered(ctx context.Context, n *note) error {
	of := numberOf(n.Task) / 8
	asks := of%60 == 17
	if asks {
		_, before := s.notes.asked.LoadOrStore(n.Task, true)
		asks = !before
	}
	switch {
	case asks:
		n.Settled, n.Least = "asked to wait", map[string]int64{throttle.Global: 0, "tenant": 0, "provider": 0}
		return worker.AskedToWait("provider", time.Second, errors.New("421"))
	case of%30 == 5:
		_, _ = worker.Report(ctx, "provider", throttle.Report{Refused: true})
	case of%30 == 11:
		_, _ = worker.Report(ctx, "provider", throttle.Report{
			Limits: []throttle.ReportedLimit{{Units: 8, Remaining: 3}}})
	default:
		_, _ = worker.Report(ctx, "provider", throttle.Report{})
	}
	return nil
}

// soakVariable is the environment variable that makes this test binary a worker process of a soak, and has the
// settings of the process.
const soakVariable = "RELIABILITY_SOAK"

// soakSettings are the settings of a worker process of a soak.
type soakSettings struct {
	Name, Decide, Work string
	Begins             time.Time
	Length             time.Duration
	Notes, Process     string
}

// workloads returns the workloads of a soak, except the one whose clock steps: two processes cannot share such a clock.
func (s soakSettings) workloads() []workload {
	return []workload{mail(s.Name+"-mail", s.Begins, s.Length), quick(s.Name + "-quick")}
}

// beSoaker runs the worker process. It ends with its parent.
func beSoaker(text string) error {
	var settings soakSettings
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return err
	}
	notes, err := openNotebook(settings.Notes, settings.Process)
	if err != nil {
		return err
	}
	for _, w := range settings.workloads() {
		if _, err := startSoakWorker(w, settings.Decide, settings.Work, nil, notes); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// headerOf writes a job as the header from which jobInHeader reads it.
func headerOf(job throttle.Job) (string, error) {
	text, err := json.Marshal(job)
	return string(text), err
}
