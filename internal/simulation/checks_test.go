package simulation_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// progress is how far a job has come, by what its handler did.
type progress struct {
	job      *job
	calls    int
	failures int
	ended    bool
	archived bool
}

// advance takes up the end of one call of the handler.
func (p *progress) advance() {
	does := succeeds
	if p.calls < len(p.job.outcomes) {
		does = p.job.outcomes[p.calls].does
	}
	p.calls++
	switch does {
	case succeeds, settles:
		p.ended = true
	case skips:
		p.ended, p.archived = true, true
	case fails, panics, untouched:
		p.failures++
		p.archived = p.failures > p.job.retries
		p.ended = p.archived
	}
}

// bound returns the time by which all jobs must have ended: the sum of everything that can delay the last job, as if no
// two of these happened at the same time. See the package's documentation.
func (p *plan) bound() time.Duration {
	total := p.span
	add := func(d time.Duration) { total += d }
	for _, scope := range p.scopes {
		var longest time.Duration
		for _, key := range p.keys(scope.Name) {
			var takes time.Duration
			for _, limit := range scope.Limits {
				takes += time.Duration(p.windowsOf(&scope, key, limit) *
					float64(limit.Window+max(limit.Precision, limit.Window/100)))
			}
			longest = max(longest, takes)
		}
		add(longest)
		add(p.closed(&scope))
	}
	grace := p.grace()
	for _, j := range p.jobs {
		add(time.Duration(j.calls()) * j.handle)
		if p.running { // as if all jobs ran in one place, which cools down and takes time to be found free
			add(time.Duration(j.calls()) * 3 * time.Second)
		}
		for _, o := range j.outcomes {
			if add(5 * time.Second); o.does == waits { // a retry, asynq's whole seconds, and slots of other jobs
				add(2 * o.wait)
			}
		}
		if j.how == plain && j.retries <= 1 {
			add(2 * grace) // the job keeps a worker busy that other tasks wait for
		}
	}
	for _, f := range p.faults {
		switch add(f.lasts + 10*time.Second); {
		case f.strikes():
			add(lostLease)
			if p.running {
				add(30 * time.Second) // the places of a dead process
			}
		case f.does == clock && f.step < 0:
			add(-f.step)
		case f.does == limits:
			add(10 * time.Minute)
		}
	}
	return total + time.Minute
}

// settleWithin is the default of throttle.Options.SettleWithin.
const settleWithin = time.Hour

func (p *plan) grace() time.Duration { return cmp.Or(p.options.Grace, 5*time.Second) }

func (p *plan) lookahead() time.Duration { return cmp.Or(p.options.Lookahead, time.Second) }

// lostLease is how long asynq takes at most to bring back a task that a dead server held: asynq
// looks once a minute for leases, of 30 s, that have been over for 30 s.
const lostLease = 2*time.Minute + 5*time.Second

// await waits until asynq has nothing more to do.
func (w *world) await() {
	bound, nights, last := w.plan.bound(), w.plan.mostNights(), w.plan.jobs[len(w.plan.jobs)-1].arrives
	for {
		time.Sleep(time.Second)
		left, waiting := w.left(), w.waiting()
		switch passed := time.Since(w.began) - w.slept; {
		case passed > last && left == 0 && len(waiting) == 0:
			return
		case passed > bound+time.Duration(w.nights)*night:
			w.errorf("after %s %d tasks have not ended, and %q stand in line", bound, left, waiting)
			w.describe()
			return
		case w.nights > nights:
			w.errorf("after %d nights %d tasks have not ended, and %q stand in line", w.nights, left, waiting)
			w.describe()
			return
		}
		w.rest()
	}
}

// left returns how many tasks asynq still has to run.
func (w *world) left() (n int64) {
	ctx, pipe := context.Background(), w.operator.wire.client.Pipeline()
	pending, active := pipe.LLen(ctx, "asynq:{default}:pending"), pipe.LLen(ctx, "asynq:{default}:active")
	scheduled, retry := pipe.ZCard(ctx, "asynq:{default}:scheduled"), pipe.ZCard(ctx, "asynq:{default}:retry")
	if _, err := pipe.Exec(ctx); err != nil {
		w.errorf("what is left: %v", err)
	}
	return pending.Val() + active.Val() + scheduled.Val() + retry.Val()
}

// waiting returns the jobs in line. A job whose task is gone leaves the line when its turn comes.
func (w *world) waiting() (jobs []string) {
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	for _, line := range w.account.lines {
		jobs = slices.AppendSeq(jobs, maps.Keys(line))
	}
	return jobs
}

// describe logs which jobs have not ended.
func (w *world) describe() {
	n := 0
	for _, j := range w.plan.jobs {
		info, err := w.tasks.GetTaskInfo("default", j.id)
		if err != nil || info.State == asynq.TaskStateArchived {
			continue
		}
		if n++; n > 10 {
			return
		}
		job := throttle.Job{ID: fmt.Sprintf("asynq:default/%s/%d", j.id, info.Retried), Weight: j.weight,
			Priority: j.priority, Costs: j.costs, Keys: map[string]string{"tenant": j.tenant}}
		if j.domain != "" {
			job.Keys["domain"] = j.domain
		}
		told, err := inspect.New(w.operator.throttle).Explain(context.Background(), job)
		w.t.Logf("%s weight %d costs %v tenant %s domain %s is %s, retried %d, next %s, last error %q; %+v %v",
			j.id, j.weight, j.costs, j.tenant, j.domain, info.State, info.Retried, info.NextProcessAt.Sub(w.began),
			info.LastErr, told, err)
	}
}

// audit asks Redis for the usage of each scope key; the account compares it.
func (w *world) audit() {
	for _, scope := range w.plan.scopes {
		for _, key := range w.plan.keys(scope.Name) {
			_, err := inspect.New(w.operator.throttle).Usage(context.Background(), scope.Name, key)
			w.must("Usage", err)
		}
	}
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	w.account.checkEdges()
}

// end stops all processes and checks what is left.
func (w *world) end() {
	for _, r := range w.alive() {
		r.stop()
	}
	for _, r := range w.processes {
		r.leave() // goroutines that are left of a dead process would run during all the time that passes now
	}
	w.audit()
	w.checkKeys()
	w.settleDown()
	w.checkJobs()
	w.checkCharges()
	w.checkRunning()
	w.checkPeriods()
	w.checkLengths()
	if w.plan.kind == even {
		w.checkShares()
	}
	w.restore()
	w.checkKeys()
	w.checkNoKeys()
	close(w.over)
	for _, r := range w.processes {
		_ = r.wire.client.Close()
	}
	w.pending.Wait()
	time.Sleep(time.Minute) // by then the processes' publishing in the background has failed
	_ = w.operator.wire.client.Close()
	w.backend.close(w)
	w.report()
}

// settleDown waits until no booking counts any more, and checks that nothing is booked then.
func (w *world) settleDown() {
	var longest time.Duration
	for _, scope := range w.plan.scopes {
		for _, limit := range scope.Limits {
			longest = max(longest, limit.Window, limit.Lease)
		}
	}
	// A slot may lie a window beyond the lookahead, and counts for a sub-window longer.
	w.sleep(w.plan.lookahead() + 3*longest + w.plan.grace())
	for _, scope := range w.plan.scopes {
		for _, limit := range scope.Limits {
			if until := w.endOf(limit); !until.IsZero() {
				w.sleep(until.Sub(w.now()) + w.plan.grace() + time.Second)
			}
		}
	}
	w.sleep(w.plan.climbs())
	w.redis.mu.Lock()
	w.account.quiet = true
	w.redis.mu.Unlock()
	w.audit()
}

// report logs how much happened in a world, to tune what is drawn.
func (w *world) report() {
	var putBack, pulled, woken int64
	lost, calls, interrupted := w.operator.wire.lost, 0, 0
	for _, r := range w.processes {
		stats := r.shaper.Stats()
		putBack, pulled, woken, lost = putBack+stats.PutBack, pulled+stats.Pulled, woken+stats.Woken, lost+r.wire.lost
	}
	for _, of := range w.runs {
		for _, c := range of {
			if calls++; c.interrupted {
				interrupted++
			}
		}
	}
	w.t.Logf(
		"%s: jobs=%d refused=%d grants=%d putbacks=%d pulled=%d woken=%d calls=%d interrupted=%d lost=%d processes=%d "+
			"usages=%d reports=%d lowered=%d scheduled=%t starts=%d nights=%d edges=%d ramps=%d "+
			"advances=%d advanced=%d checked=%d virtual=%s",
		w.plan.kind, len(w.plan.jobs), len(w.refused), w.account.grants, putBack, pulled, woken, calls, interrupted, lost,
		len(w.processes), w.account.usages, w.account.reports, w.account.lowered, w.plan.scheduled, w.account.starts,
		w.nights, w.account.edges, w.account.ramps, w.account.advanced.charged, w.account.advanced.started,
		w.account.advanced.checked,
		time.Since(w.began).Round(time.Second))
}

// restore takes back every setting of run time.
func (w *world) restore() {
	ctx, th := context.Background(), w.operator.throttle
	for _, scope := range w.plan.scopes {
		for _, key := range w.plan.keys(scope.Name) {
			_, err := inspect.New(th).Resume(ctx, scope.Name, key)
			w.must("Resume", err)
		}
	}
}

// archiveKept is for how long asynq keeps archived tasks: archivedExpirationInDays in its internal/rdb/rdb.go.
const archiveKept = 90 * 24 * time.Hour

// checkJobs checks that every job ran as drawn: once for each outcome, and again only
// if something happened to the process on which it ran.
func (w *world) checkJobs() {
	for _, j := range w.plan.jobs {
		state, hit := w.follow(j)
		info, err := w.tasks.GetTaskInfo("default", j.id)
		switch by := w.byHand[j.id]; {
		case w.refused[j.id]:
			if err == nil || len(w.runs[j.id]) > 0 {
				w.errorf("%s was refused, and ran %d times; asynq has %+v", j.id, len(w.runs[j.id]), info)
			}
		case by == deletion && err == nil:
			w.errorf("%s was deleted and is %s", j.id, info.State)
		case by == deletion || by == archive && err == nil && info.State == asynq.TaskStateArchived:
		case err != nil && (by == archive || state.archived) && time.Since(w.began) > archiveKept:
		case err != nil && state.ended && !state.archived: // the task is done, and gone from asynq
		case err == nil && info.State == asynq.TaskStateArchived && state.archived:
		case err == nil && info.State == asynq.TaskStateArchived && w.lost(state, hit, info):
		default:
			w.errorf("%s ended otherwise than drawn: %+v, %+v %v; outcomes %v, retries %d", j.id, state, info, err,
				j.outcomes, j.retries)
		}
	}
}

// checkCharges checks that no job is charged without running. It checks nothing if a process was
// struck, or if the reply to a grant may be lost for good and another process, which does not know
// of the grant, may have asked again.
func (w *world) checkCharges() {
	lost := 0
	for _, f := range w.plan.faults {
		if f.strikes() {
			return
		}
		if f.does == loss && f.verb == "reserve" {
			lost += f.replies
		}
	}
	if lost > resends && len(w.processes) > 1 {
		return
	}
	for _, charges := range w.account.charges {
		for _, c := range charges {
			if !c.run && !c.gone && slices.ContainsFunc(c.units, func(n int64) bool { return n > 0 }) {
				w.errorf("charged, and never run: %s", c)
			}
		}
	}
}

// resends is how often go-redis sends a command again.
const resends = 3

// lost reports whether attempts of a job were lost with their processes, so that the job could
// not run to its end: asynq counts lost attempts as failures.
func (w *world) lost(state progress, hit bool, info *asynq.TaskInfo) bool {
	return slices.ContainsFunc(w.plan.faults, fault.strikes) &&
		(hit || strings.Contains(info.LastErr, asynq.ErrLeaseExpired.Error()) || info.Retried >= state.failures)
}

// follow goes through a job's calls. It returns how far the job has come, and whether a fault hit one of its calls.
func (w *world) follow(j *job) (state progress, hit bool) {
	state.job = j
	var before *call
	for _, c := range w.runs[j.id] {
		if before != nil {
			faulted := before.on.faulted(before.begins.Add(-2*time.Second), c.begins)
			switch {
			case faulted:
				hit = true
			case before.ends.IsZero() || before.ends.After(c.begins):
				w.errorf("%s runs again while it runs, and nothing has happened to its process", j.id)
			case state.ended:
				w.errorf("%s runs again after its end, and nothing has happened to its process", j.id)
			}
		}
		if before = c; c.interrupted {
			hit = true
			if !c.on.faulted(c.begins, time.Now()) {
				w.errorf("%s did not come to its end, and nothing has happened to its process", j.id)
			}
			continue
		}
		state.ended, state.archived = false, false // asynq could not write the end
		state.advance()
	}
	return state, hit
}

// checkShares checks the inequality of start-time fair queueing: while two tenants stand in line,
// their pulled units per share differ by no more than the heaviest job of each. A tenant with a
// heavy job that has a claim or was passed counts with two jobs, since its tag is off by the second
// one (TestFairnessBound in internal/line has the proof).
func (w *world) checkShares() {
	share := func(tenant string) float64 { return float64(max(1, w.plan.options.Shares[tenant])) }
	jobs := func(tenant string) float64 {
		if w.account.passed[tenant] {
			return 2
		}
		return 1
	}
	heaviest := map[string]float64{}
	for _, j := range w.plan.jobs {
		heaviest[j.tenant] = max(heaviest[j.tenant], float64(j.cost(throttle.Global)))
	}
	for i, f := range w.plan.tenants {
		for _, m := range w.plan.tenants[:i] {
			bound := jobs(f)*heaviest[f]/share(f) + jobs(m)*heaviest[m]/share(m)
			var at, low, high float64
			for _, p := range w.account.pulls {
				if !slices.Contains(p.ready, f) || !slices.Contains(p.ready, m) {
					at, low, high = 0, 0, 0
					continue
				}
				switch p.flow {
				case f:
					at += float64(p.weight) / share(f)
				case m:
					at -= float64(p.weight) / share(m)
				}
				low, high = min(low, at), max(high, at)
				if high-low > bound+1e-9 {
					w.errorf(
						"of %s and %s one was pulled %.3f units per share more than the other, want at most %.3f", f, m, high-low, bound)
					at, low, high = 0, 0, 0
				}
			}
		}
	}
}

// checkKeys checks that all keys that the throttle has left in Redis expire, within the time that
// docs/redis-state.md says.
func (w *world) checkKeys() {
	ctx, client := context.Background(), w.operator.wire.client
	for _, key := range client.Keys(ctx, "thr:*").Val() {
		left := client.PTTL(ctx, key).Val()
		if most := w.kept(key); left <= 0 || left > most {
			w.errorf("key %s lives for %s, want above 0 and up to %s", key, left, most)
		}
	}
}

// checkNoKeys checks that no key is left after the longest time that a key may live.
func (w *world) checkNoKeys() {
	ctx, client := context.Background(), w.operator.wire.client
	if w.backend.pass(32*24*time.Hour + w.plan.lookahead() + 6*w.plan.longest() + 3*w.plan.climbs()) {
		if keys := client.Keys(ctx, "thr:*").Val(); len(keys) > 0 {
			w.errorf("keys are left: %q", keys)
		}
	}
}

// kept returns how long a key may live from now on.
func (w *world) kept(key string) time.Duration {
	longest, climbs := w.plan.longest(), w.plan.climbs()
	if strings.HasSuffix(key, "}:asynq") {
		return time.Minute // the owner of the throttle
	}
	if strings.HasSuffix(key, "}:processes") {
		return 24 * time.Hour
	}
	var back time.Duration // after a step back of the clock, an instant comes that much later
	for _, f := range w.plan.faults {
		if f.does == clock {
			back = max(back, -f.step)
		}
	}
	parts := strings.SplitN(key, ":", 4)
	switch kind := parts[3]; {
	case strings.HasPrefix(kind, "settled:"):
		return settleWithin + w.plan.lookahead() + longest + back
	case strings.HasPrefix(kind, "asked:"):
		return 10 * time.Minute
	case strings.HasPrefix(kind, "key:"), strings.HasPrefix(kind, "ledger:"):
		// A slot or a claim may lie some windows beyond the lookahead, and the expiry is up to
		// a quarter later, so that it is renewed seldom.
		if w.plan.follows(strings.Split(kind, ":")[1]) {
			longest += 24 * time.Hour // the served share is remembered for a day
		}
		return (2*w.plan.lookahead()+5*longest+climbs+back+w.plan.grace()+time.Minute)*5/4 + time.Second
	}
	return w.plan.lookahead() + 2*longest + climbs + 30*24*time.Hour
}

// longest returns for how long a start counts at most. A period with a change of the clock may have an hour more.
func (p *plan) longest() (longest time.Duration) {
	note := func(limits []throttle.Limit) {
		for _, limit := range limits {
			longest = max(longest, limit.Window, limit.Lease)
			if isScheduled(limit) {
				longest = max(longest, limit.Length()+time.Hour)
			}
		}
	}
	for _, scope := range p.scopes {
		note(scope.Limits)
	}
	for _, f := range p.faults {
		note(f.limits)
	}
	return longest
}

// String describes what was drawn, for a person who looks at a failure.
func (p *plan) String() string {
	var b strings.Builder
	if p.scheduled {
		fmt.Fprintf(&b, "from %s on\n", p.begins.Format(time.RFC3339Nano))
	}
	fmt.Fprintf(&b, "%s run of %s, %d jobs of %d tenants\n", p.kind, p.span, len(p.jobs), len(p.tenants))
	for _, scope := range p.scopes {
		fmt.Fprintf(&b, "scope %s: %v, floor %v, lines of at most %s\n", scope.Name, scope.Limits, scope.Floor,
			scope.MaxWaiting)
	}
	fmt.Fprintf(&b, "grace %s, lookahead %s, fair scope %q, shares %v\n", p.options.Grace, p.options.Lookahead,
		p.options.FairScope, p.options.Shares)
	for _, process := range p.processes {
		fmt.Fprintf(&b, "process %+v\n", process)
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, "fault at %s\n", f)
	}
	for _, s := range p.said {
		fmt.Fprintf(&b, "report at %s\n", s)
	}
	return b.String()
}
